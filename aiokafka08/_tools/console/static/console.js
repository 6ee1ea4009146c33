// What works without it: everything but the refresh of the page's data, and times of the viewer's
// zone. htmx replaces #live; this keeps the age of the data and the times true.
(() => {
  "use strict";
  const two = (number) => String(number).padStart(2, "0");
  const clock = (at) => [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
  const date = (at) => [at.getFullYear(), at.getMonth() + 1, at.getDate()].map(two).join("-");

  const localise = () => {
    for (const element of document.querySelectorAll("time[datetime]")) {
      const at = new Date(element.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const millis = String(at.getMilliseconds()).padStart(3, "0");
      element.textContent = `${date(at)} ${clock(at)}.${millis}`;
    }
  };
  // The server says how old the data is: the viewer's clock may differ from its own.
  let said = null;
  let saidAt = 0;
  const age = () => {
    const element = document.querySelector("#age[data-age]");
    if (!element) return;
    if (element.dataset.age !== said) {
      said = element.dataset.age;
      saidAt = performance.now();
    }
    const seconds = Math.round(Number(said) + (performance.now() - saidAt) / 1000);
    element.textContent = seconds < 120 ? `${seconds} s old` : `${Math.floor(seconds / 60)} min old`;
    element.classList.toggle("bad", seconds > Number(element.dataset.staleAfter));
  };
  // Before the first sample: ask for the page until it is there. What a reader reads stays meanwhile.
  const wait = () => {
    const waiting = document.querySelector("[data-waiting]");
    if (!waiting) return;
    setTimeout(async () => {
      try {
        const text = await (await fetch(location.href)).text();
        const next = new DOMParser().parseFromString(text, "text/html").querySelector("[data-waiting]");
        if (!next) return location.reload();
        if (next.textContent !== waiting.textContent) waiting.replaceChildren(...next.childNodes);
      } catch {
        // The console doesn't answer: ask again.
      }
      wait();
    }, 2000);
  };
  // One consumer of the server reads for this view, while it isn't paused.
  const tail = () => {
    const body = document.querySelector("tbody[data-tail]");
    if (!body) return;
    const state = document.querySelector("#tail-state");
    const button = document.querySelector("#pause");
    let source = null;
    const say = (text, name) => { state.textContent = text; state.className = name; };
    const close = () => { source.close(); source = null; button.textContent = "Go on"; };
    const open = () => {
      say("Connecting…", "");
      button.textContent = "Pause";
      source = new EventSource(body.dataset.tail);
      source.addEventListener("state", (event) => say(event.data, ""));
      source.addEventListener("rows", (event) => {
        body.insertAdjacentHTML("afterbegin", event.data);
        while (body.rows.length > 200) body.deleteRow(-1);
        localise();
      });
      source.addEventListener("end", (event) => { say(event.data, "bad"); close(); });
      source.onerror = () => say("No connection. The browser tries again.", "bad");
    };
    button.hidden = false;
    button.onclick = () => { if (source) { close(); say("Paused.", ""); } else open(); };
    open();
  };
  document.addEventListener("DOMContentLoaded", () => { localise(); age(); wait(); tail(); });
  document.addEventListener("htmx:after:swap", () => { localise(); age(); });
  setInterval(age, 1000);
})();
