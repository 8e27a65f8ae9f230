// Keeps the page up to date: asks for it again, and changes only the elements that differ, so that focus, scrolling
// and open details stay.
"use strict";

const PAUSE_MS = 700, LIMIT_MS = 8000, STALE_S = 5;
const byId = (id) => document.getElementById(id);
let tag = "", readAt = 0, state = "live", refreshing = null, timer = 0;

function sameKind(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
}

function morph(from, to) {
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && !(name === "open" && from.nodeName === "DETAILS")) from.removeAttribute(name);
  }
  for (const { name, value } of [...to.attributes]) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  const wasAtEnd = from.scrollHeight - from.scrollTop - from.clientHeight < 8;
  let old = from.firstChild;
  for (const fresh of [...to.childNodes]) {
    let match = old;
    if (fresh.id && match && !sameKind(match, fresh)) {  // a row that moved
      match = [...from.children].find((each) => each.id === fresh.id && each.nodeName === fresh.nodeName);
      if (match) (from.moveBefore ?? from.insertBefore).call(from, match, old);  // the first one keeps the focus
    }
    if (match && sameKind(match, fresh)) {
      morph(match, fresh);
      old = match.nextSibling;
    } else {
      from.insertBefore(fresh, old);
    }
  }
  while (old) {
    const next = old.nextSibling;
    old.remove();
    old = next;
  }
  if (from.matches(".log") && wasAtEnd) from.scrollTop = from.scrollHeight;
}

function duration(seconds) {
  const whole = Math.round(seconds), pad = (number) => String(number).padStart(2, "0");
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes}:${pad(whole % 60)}` : `${Math.floor(minutes / 60)}:${pad(minutes % 60)}:${pad(whole % 60)}`;
}

const WORDS = {
  live: "Live",
  slow: "Waiting for the cluster",
  failing: "Not updated",
  reconnecting: "Reconnecting",
  stopped: "No answer",
  "signed-out": "Signed out",
};
const NOTES = {
  reconnecting: "The connection to the cluster broke. The dashboard is opening it again.",
  failing: "The cluster answered with an error. The dashboard tries again.",
  stopped: "The dashboard does not answer. Does `fab dashboard` still run, and is the SSH forwarding up? This page tries again.",
  "signed-out": "This dashboard was started again. Open the address that `fab dashboard` has printed.",
};

function showState() {
  const age = readAt ? (Date.now() - readAt) / 1000 : 0;
  const shown = state === "live" && age > STALE_S ? "slow" : state;
  const old = readAt && age > STALE_S ? `, data is ${duration(age)} old` : "";
  const live = byId("live"), note = byId("note"), text = NOTES[shown] || "";
  live.dataset.state = shown;
  byId("live-text").textContent = WORDS[shown] + old;
  if (note.textContent !== text) note.textContent = text;
  note.hidden = !text;
}

async function load() {
  const url = location.href;
  try {
    const answer = await fetch(url, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store", signal: AbortSignal.timeout(LIMIT_MS) });
    if (url !== location.href) return;
    if (answer.status === 403) {
      state = "signed-out";
      return;
    }
    state = answer.headers.get("X-State") || "failing";
    if (answer.headers.get("X-Age")) readAt = Date.now() - 1000 * Number(answer.headers.get("X-Age"));
    if (answer.status !== 200) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (url !== location.href) return;
    tag = answer.headers.get("ETag");
    morph(byId("main"), page.getElementById("main"));
  } catch {
    state = "stopped";
  }
}

function refresh() {
  clearTimeout(timer);
  refreshing ??= load().finally(() => {
    refreshing = null;
    showState();
    clearTimeout(timer);
    if (!document.hidden) timer = setTimeout(refresh, PAUSE_MS);
  });
  return refreshing;
}

async function choose(form, submitter) {
  const chosen = new URLSearchParams();
  for (const [name, value] of new FormData(form, submitter)) if (value) chosen.set(name, value);
  history.replaceState(null, "", `?${chosen}`);
  tag = "";
  await refreshing;
  refresh();
}

const dialog = byId("dialog");
let asked = null;  // the action of the open dialog, and whether its question was answered

function ask(button) {
  const { act, title, yes, text } = button.dataset;
  asked = { act, yes, agreed: false };
  byId("dialog-title").textContent = title;
  byId("dialog-text").textContent = text;
  byId("dialog-result").textContent = "";
  Object.assign(byId("dialog-yes"), { textContent: yes, hidden: false, disabled: false });
  byId("dialog-no").textContent = "Cancel";
  dialog.showModal();
}

async function act() {
  const current = asked, result = byId("dialog-result"), yes = byId("dialog-yes");
  yes.disabled = true;
  result.textContent = "Working … this may take a minute. You may close this window meanwhile.";
  let answer;
  try {
    const body = new URLSearchParams({ yes: current.agreed ? "1" : "" });
    answer = await (await fetch(current.act, { method: "POST", body })).json();
  } catch {
    answer = { error: "The dashboard did not answer. Look at the run before you repeat this." };
  }
  if (current !== asked) return;
  if (answer.question) {
    current.agreed = true;
    result.textContent = answer.question + (answer.question.endsWith("?") ? "" : " Are you sure?");
    yes.disabled = false;
    return;
  }
  result.textContent = answer.done || answer.error;
  yes.hidden = true;
  byId("dialog-no").textContent = "Close";
  byId("dialog-no").focus();
  refresh();
}

byId("dialog-no").addEventListener("click", () => dialog.close());
byId("dialog-yes").addEventListener("click", act);
dialog.addEventListener("close", () => { if (!dialog.open) asked = null; });  // it may be open again by now
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-act]");
  if (button) ask(button);
});
document.addEventListener("submit", (event) => {
  event.preventDefault();
  choose(event.target, event.submitter);
});
document.addEventListener("input", (event) => {
  if (event.target.form) choose(event.target.form);
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
window.addEventListener("online", refresh);
for (const log of document.querySelectorAll(".log")) log.scrollTop = log.scrollHeight;
setInterval(showState, 1000);
refresh();
