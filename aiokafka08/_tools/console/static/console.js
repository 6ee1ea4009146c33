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
      const short = element.hasAttribute("data-clock");
      const millis = String(at.getMilliseconds()).padStart(3, "0");
      element.textContent = short ? clock(at) : `${date(at)} ${clock(at)}.${millis}`;
    }
  };
  const age = () => {
    const element = document.querySelector("#age[data-taken-at]");
    if (!element) return;
    const seconds = Math.max(Math.round(Date.now() / 1000 - Number(element.dataset.takenAt)), 0);
    element.textContent = seconds < 120 ? `${seconds} s old` : `${Math.floor(seconds / 60)} min old`;
    element.classList.toggle("bad", seconds > Number(element.dataset.staleAfter));
  };
  document.addEventListener("DOMContentLoaded", () => { localise(); age(); });
  document.addEventListener("htmx:after:swap", () => { localise(); age(); });
  setInterval(age, 1000);
})();
