"""The alarm: sequential evidence that a version's confidences are wrong, and the actions that follow."""

from service.alarm.advice import advice_of
from service.alarm.coverage import COVERAGE, CoverageState
from service.alarm.coverage_readings import set_coverage
from service.alarm.expected_results import class_shares_of, expected_of
from service.alarm.group_readings import group_alarms
from service.alarm.groups import GROUPS, GroupState
from service.alarm.promise import PROMISE, PromiseState
from service.alarm.promise_readings import acting_alone
from service.alarm.readings import alarm_of
from service.alarm.state import ALARM, AlarmState

__all__ = [
    "ALARM",
    "COVERAGE",
    "GROUPS",
    "PROMISE",
    "AlarmState",
    "CoverageState",
    "GroupState",
    "PromiseState",
    "acting_alone",
    "advice_of",
    "alarm_of",
    "group_alarms",
    "class_shares_of",
    "expected_of",
    "set_coverage",
]
