"""The answers of the routes that call webhooks."""

from __future__ import annotations

from pydantic import BaseModel, Field


class WebhookTest(BaseModel):
    webhook: str = Field(description="scheme, host and port of its URL; the rest may be a secret")
    taken: bool = Field(description="whether it has answered 2xx")
    problem: str | None
    flow_run: str | None = Field(description="id of the Prefect flow run that it has started")


class AlarmTest(BaseModel):
    webhooks: list[WebhookTest]
