// Keeps a page as it is now: whenever the service tells of a change, and every ten seconds for what only time changes, the page
// is asked for anew and the parts of it that differ are put in place of the old ones. Without this file the pages work as they are.
"use strict";

const PAUSE_MS = 1000;
const POLL_MS = 10000;
const PATIENCE_MS = 10000;
const SHARE = 10; // the service is left alone ten times as long as it took to answer, however fast changes come
const served = new Map();
let isAsking = false;
let isOld = false;
let next = 0;

const parts = (root) => [...root.querySelectorAll("[data-part]")];
for (const part of parts(document)) served.set(part.dataset.part, part.innerHTML);

// Where the focus is, so that it is found again: an id, a folded thing's key, or a link's address.
function place(element) {
  if (element.id) return `#${CSS.escape(element.id)}`;
  const folded = element.matches("summary") && element.parentElement.dataset.key;
  if (folded) return `[data-key="${CSS.escape(folded)}"] > summary`;
  return element.matches("a") ? `a[href="${CSS.escape(element.getAttribute("href"))}"]` : null;
}

function replace(old, html) {
  const folds = new Map([...old.querySelectorAll("details[data-key]")].map((one) => [one.dataset.key, one.open]));
  const focus = old.contains(document.activeElement) ? place(document.activeElement) : null;
  old.innerHTML = html;
  for (const one of old.querySelectorAll("details[data-key]")) {
    if (folds.has(one.dataset.key)) one.open = folds.get(one.dataset.key);
  }
  if (focus) old.querySelector(focus)?.focus({ preventScroll: true });
}

async function refresh() {
  const begin = Date.now();
  const lost = document.getElementById("lost");
  let answer, html;
  try {
    const options = { headers: { Accept: "text/html" }, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) };
    answer = await fetch(location.pathname + location.search, options);
    html = await answer.text();
  } catch {
    answer = null;
  }
  next = Date.now() + Math.max(PAUSE_MS, SHARE * (Date.now() - begin));
  if (answer?.redirected) return location.reload();
  if (!answer?.ok) {
    const now = new Date().toISOString().slice(0, 19).replace("T", " ");
    if (lost.hidden) lost.textContent = `The service does not answer. This page is as of ${now} UTC or earlier.`;
    lost.hidden = false;
    return;
  }
  lost.hidden = true;
  const fresh = new DOMParser().parseFromString(html, "text/html");
  for (const part of parts(fresh)) {
    const name = part.dataset.part;
    const old = document.querySelector(`[data-part="${name}"]`);
    if (!old || served.get(name) === part.innerHTML) continue;
    served.set(name, part.innerHTML);
    replace(old, part.innerHTML);
  }
}

// One question at a time; what happens while it is asked is asked about once more.
async function soon() {
  if (isAsking) {
    isOld = true;
    return;
  }
  isAsking = true;
  await new Promise((go) => setTimeout(go, Math.max(50, next - Date.now())));
  isOld = false;
  await refresh();
  isAsking = false;
  if (isOld) soon();
}

// A browser opens six connections to a service at most, for all of its tabs: only a page that is seen holds one.
let events = null;

function follow() {
  events?.close();
  events = null;
  if (document.hidden) return;
  events = new EventSource(`/v1/events?after=${document.body.dataset.seq}`);
  events.onmessage = soon;
  events.onerror = soon;
  events.addEventListener("other", soon);
}

follow();
setInterval(() => document.hidden || soon(), POLL_MS);
addEventListener("pagehide", () => events?.close());
addEventListener("pageshow", (shown) => {
  if (!shown.persisted) return;
  follow();
  soon();
});
document.addEventListener("visibilitychange", () => {
  follow();
  if (!document.hidden) soon();
});
