// Keys 1 to 9 choose a class, s skips. The feedback key is kept until the tab is closed.
(() => {
  const form = document.getElementById("label-form");
  if (!form) return;
  const key = document.getElementById("key");
  if (key) {
    key.value = sessionStorage.getItem("feedback-key") || "";
    form.addEventListener("submit", () => sessionStorage.setItem("feedback-key", key.value));
  }
  document.addEventListener("keydown", (event) => {
    if (event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const button = form.querySelector(`button[data-key="${CSS.escape(event.key)}"]`);
    if (button) form.requestSubmit(button);
  });
})();
