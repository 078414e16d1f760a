// Keys 1 to 9 choose a class, s skips. The feedback key is kept until the tab is closed.
(() => {
  const form = document.getElementById("label-form");
  if (!form) return;
  const key = document.getElementById("key");
  if (key) key.value = sessionStorage.getItem("feedback-key") || "";
  let isSent = false;
  form.addEventListener("submit", (event) => {
    // A second press before the next page is there was not meant for this answer.
    if (isSent) event.preventDefault();
    isSent = true;
    if (key) sessionStorage.setItem("feedback-key", key.value);
  });
  // The page comes back as it was left, by the button Back.
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) isSent = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const button = form.querySelector(`button[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
    if (button) form.requestSubmit(button);
  });
})();
