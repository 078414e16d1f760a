"use strict";
(() => {
  const EVERY = 10000, WIDTH = 500, SAMPLE = "http://127.0.0.1:8000", FOCUS = "a, button, summary, input, select, [tabindex]";
  const all = (what, root = document) => [...root.querySelectorAll(what)];
  const one = (what, root = document) => root.querySelector(what);
  const make = (tag, look, text = "") => Object.assign(document.createElement(tag), { className: look, textContent: text });
  const news = one("#news"), pulse = one("#pulse");
  const served = new Map(all("[data-part]").map((part) => [part.id, part.outerHTML]));
  const picked = new Map();
  let paused = false, timer = 0;

  // The tables' rows are read out at the charts: by pointer, and by arrow keys.
  function chart(box) {
    const xs = box.dataset.x.split(" ").filter(Boolean).map(Number);
    const table = document.getElementById(box.dataset.table);
    if (!xs.length || !table) return;
    const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    const svg = one("svg", box), [top, bottom] = box.dataset.y.split(" ");
    const tip = make("div", "tip"), marker = document.createElementNS(svg.namespaceURI, "path");
    tip.hidden = true;
    tip.setAttribute("aria-hidden", "true");
    marker.setAttribute("class", "marker");
    svg.append(marker);
    box.append(tip);
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `${box.dataset.name}: arrow keys read out the values`);
    const hide = () => { tip.hidden = true; marker.removeAttribute("d"); };
    const show = (k, aloud) => {
      const words = [...table.tBodies[0].rows[k].cells].map((cell) => cell.textContent);
      picked.set(box.id, k);
      tip.replaceChildren(make("b", "", `${heads[0]} ${words[0]}`));
      words.slice(1).forEach((word, j) => tip.append(make("span", "", heads[j + 1]), make("span", "value", word)));
      tip.hidden = false;
      marker.setAttribute("d", `M${xs[k]} ${top}V${bottom}`);
      const at = (xs[k] / WIDTH) * svg.clientWidth + svg.getBoundingClientRect().left - box.getBoundingClientRect().left;
      const left = at < box.clientWidth / 2 ? at + 12 : at - 12 - tip.offsetWidth;
      tip.style.left = `${Math.max(0, Math.min(left, box.clientWidth - tip.offsetWidth))}px`;
      tip.style.top = `${(top / WIDTH) * svg.clientWidth + 6}px`;
      if (aloud) news.textContent = words.map((word, j) => `${heads[j]} ${word}`).join(", ");
    };
    const nearest = (event) => {
      const place = svg.getBoundingClientRect(), x = ((event.clientX - place.left) / place.width) * WIDTH;
      show(xs.reduce((best, other, k) => (Math.abs(other - x) < Math.abs(xs[best] - x) ? k : best), 0), false);
    };
    box.addEventListener("pointermove", nearest);
    box.addEventListener("pointerdown", nearest);
    box.addEventListener("pointerleave", hide);
    box.addEventListener("blur", hide);
    box.addEventListener("keydown", (event) => {
      const last = xs.length - 1, now = picked.get(box.id);
      const to = { ArrowRight: (now ?? -1) + 1, ArrowLeft: (now ?? last + 1) - 1, Home: 0, End: last }[event.key];
      if (event.key === "Escape") hide();
      if (to === undefined) return;
      event.preventDefault();
      show(Math.max(0, Math.min(to, last)), true);
    });
  }

  function command(box) {
    const text = one("code", box), button = make("button", "copy", "Copy");
    const here = location.protocol.startsWith("http") ? location.origin + location.pathname.replace(/\/[^/]*$/, "") : SAMPLE;
    for (const word of text.children) word.textContent = word.textContent.replace(SAMPLE, here);
    button.type = "button";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text.textContent);
        news.textContent = button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(text); // no clipboard without https: the keyboard's copy still works
        news.textContent = button.textContent = "Selected: press Ctrl+C";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 3000);
    });
    box.append(button);
  }

  // A choice made by pointer is shown at once; by keyboard every arrow would be one, so there the button is for.
  function choice(form) {
    const window_ = form.elements.window, more = form.closest("details");
    let byKey = false;
    form.addEventListener("keydown", () => { byKey = true; });
    form.addEventListener("pointerdown", () => { byKey = false; });
    form.addEventListener("change", (event) => {
      if (event.target.type === "date") window_.value = "days";
      if (event.target.name === "last") window_.value = "last";
      if (event.target !== window_ || !["days", "last"].includes(window_.value)) {
        if (!byKey && event.target.matches("select")) form.requestSubmit();
        return;
      }
      more.open = true;
      if (!byKey) form.elements[window_.value === "days" ? "from" : "last"].focus();
    });
  }

  function liven(part) {
    all(".chart", part).forEach(chart);
    all("pre.command", part).forEach(command);
    if (part.id === "choice") choice(one("form", part));
  }

  const changed = (field) => field.matches("select")
    ? field.selectedIndex !== Math.max(0, [...field.options].findIndex((option) => option.defaultSelected))
    : field.type !== "hidden" && field.value !== field.defaultValue;
  const editing = () => document.activeElement.matches("input, select") || all("input, select").some(changed);

  // Only what changed is replaced, with what was open, scrolled or focused in it.
  function replace(part, fresh) {
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const home = focused?.closest("[id]"), place = home && all(FOCUS, home).indexOf(focused);
    const open = all("details", part).map((d) => [d.id, d.open]);
    const scrolled = all(".scroll", part).map((box) => [box.id, box.scrollLeft, box.scrollTop]);
    part.replaceWith(fresh);
    liven(fresh);
    const found = (id) => id && document.getElementById(id);
    for (const [id, state] of open) if (found(id)) found(id).open = state;
    for (const [id, left, top] of scrolled) found(id)?.scrollTo(left, top);
    if (focused) (found(focused.id) || all(FOCUS, found(home.id) || fresh)[place])?.focus({ preventScroll: true });
  }

  function take(next) {
    const parts = all("[data-part]", next), before = one("#now").dataset.state;
    const texts = new Map(parts.map((part) => [part.id, part.outerHTML]));
    const top = (id) => document.getElementById(id)?.getBoundingClientRect().top ?? NaN;
    const kept = [...served.keys()].filter((id) => texts.has(id));
    const seen = kept.find((id) => top(id) >= 0 && top(id) < innerHeight) ?? kept.findLast((id) => top(id) < 0);
    const height = top(seen);
    for (const id of [...served.keys()].filter((id) => !texts.has(id))) {
      document.getElementById(id).remove();
      served.delete(id);
    }
    let last = null;
    for (const part of parts) {
      const { id } = part;
      if (!served.has(id)) {
        document.getElementById(last).after(document.adoptNode(part));
        liven(part);
      } else if (served.get(id) !== texts.get(id)) replace(document.getElementById(id), document.adoptNode(part));
      served.set(id, texts.get(id));
      last = id;
    }
    if (seen && scrollY > 0) scrollBy({ top: top(seen) - height, behavior: "instant" }); // what is read stays where it is
    document.title = next.title;
    document.body.dataset.again = next.body.dataset.again;
    one("#made").textContent = one("#made", next).textContent;
    const after = one("#now").dataset.state;
    if (after !== before) news.textContent = `Changed: ${after}. ${one(".headline").textContent}`;
  }

  async function refresh() {
    clearTimeout(timer);
    const rest = document.hidden || paused || editing();
    try {
      if (rest) {
        tell(paused ? "Paused." : "Waits while you fill in the form.");
      } else {
        const again = document.body.dataset.again;
        const answer = await fetch(again || location.href, { headers: { accept: "text/html" }, cache: "no-store", signal: AbortSignal.timeout(EVERY) });
        const text = await answer.text();
        if (!answer.ok) throw new Error(`the service answers ${answer.status}`);
        take(new DOMParser().parseFromString(text, "text/html"));
        if (again) history.replaceState(null, "", answer.url);
        tell("Refreshes every 10 seconds.");
      }
    } catch (error) {
      tell(`Not updated: ${error.message.startsWith("the service") ? error.message : "the service does not answer"}. The page shows the last report; trying again.`, true);
    }
    timer = setTimeout(refresh, EVERY);
  }

  function tell(text, away = false) {
    if (pulse.textContent !== text) pulse.textContent = text;
    if (away && !pulse.classList.contains("away")) news.textContent = text;
    pulse.classList.toggle("away", away);
  }

  all("[data-part]").forEach(liven);
  // Only a page that a server gives can be asked for again.
  function keepFresh() {
    const button = make("button", "quiet", "Pause");
    button.type = "button";
    button.addEventListener("click", () => {
      paused = !paused;
      button.textContent = paused ? "Go on" : "Pause";
      refresh();
    });
    pulse.after(" ", button);
    tell("Refreshes every 10 seconds.");
    timer = setTimeout(refresh, EVERY);
    document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  }
  if ("again" in document.body.dataset) keepFresh();

  let closed = [];
  addEventListener("beforeprint", () => { closed = all("details:not([open])"); closed.forEach((d) => { d.open = true; }); });
  addEventListener("afterprint", () => closed.forEach((d) => { d.open = false; }));
})();
