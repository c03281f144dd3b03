// Replaces the live part of the page by what the server sends. Without it the page can be read as it was loaded.
"use strict";
const live = document.getElementById("live");
const state = document.getElementById("state");
const pause = document.getElementById("pause");
let source = null;

// A link or button is found again by its place in the document: links by their address, buttons by their name and value.
const keyOf = (element) => element.getAttribute("href") || `${element.name}=${element.value}`;

const show = (html) => {
  const selection = getSelection();
  const isInUse = live.querySelector(":active") || (!selection.isCollapsed && live.contains(selection.anchorNode));
  if (isInUse) return;
  const focused = live.contains(document.activeElement) ? keyOf(document.activeElement) : null;
  live.innerHTML = html;
  if (focused === null) return;
  const again = [...live.querySelectorAll("a, button")].find((element) => keyOf(element) === focused);
  if (again) again.focus({ preventScroll: true });
};

const begin = () => {
  source = new EventSource(live.dataset.events);
  source.addEventListener("live", (event) => {
    if (state.textContent !== "live") state.textContent = "live";
    show(event.data);
  });
  source.addEventListener("error", () => {
    if (source.readyState !== EventSource.CLOSED) return;  // after the end of a stream it connects again by itself
    state.textContent = "not live: trying again";
    setTimeout(() => { if (source) begin(); }, 10000);
  });
};

if (live.dataset.events) {
  pause.hidden = false;
  pause.addEventListener("click", () => {
    if (source === null) { begin(); pause.textContent = "Pause"; return; }
    source.close();
    source = null;
    pause.textContent = "Continue";
    state.textContent = "paused";
  });
  begin();
}
