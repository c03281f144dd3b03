// Sorting and finding in tables, and times in the reader's zone. Without it everything can be read, in the order it was
// written, in UTC.
"use strict";
document.documentElement.classList.add("js");
if (document.body.dataset.local !== undefined) showLocalTimes();
for (const table of document.querySelectorAll("table.sorted")) {
  const body = table.tBodies[0];
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  const sort = (head) => {
    const descending = head.getAttribute("aria-sort") !== "descending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const rows = [...body.rows].sort((one, other) => {
      const a = valueOf(one, head.cellIndex), b = valueOf(other, head.cellIndex);
      const order = typeof a === "number" ? a - b : a.localeCompare(b);
      return descending ? -order : order;
    });
    body.append(...rows);
  };
  for (const head of table.tHead.rows[0].cells) {
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(head));
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(head); });
  }
  if (body.rows.length < 12) continue;
  const find = document.createElement("input");
  find.className = "find";
  find.type = "search";
  find.placeholder = "find in this table";
  find.setAttribute("aria-label", find.placeholder);
  find.addEventListener("input", () => {
    const wanted = find.value.toLowerCase();
    for (const row of body.rows) {
      const titles = [...row.querySelectorAll("[title]")].map((each) => each.title).join(" ");
      row.hidden = !`${row.textContent} ${titles}`.toLowerCase().includes(wanted);
    }
  });
  table.parentElement.before(find);
}

// Times say when they are, in Unix seconds; as they are written, in UTC, they become titles.
function showLocalTimes() {
  const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const two = (number) => String(number).padStart(2, "0");
  const at = (seconds) => new Date(Number(seconds) * 1000);
  const date = (time) => `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  const minute = (time) => `${two(time.getHours())}:${two(time.getMinutes())}`;
  const second = (time) => `${minute(time)}:${two(time.getSeconds())}`;
  const day = (time) => `${months[time.getMonth()]} ${two(time.getDate())}`;
  const forms = { full: (time) => `${date(time)} ${second(time)}`, day, minute, second };
  const between = (begin, end) => {
    const clock = begin.getSeconds() || end.getSeconds() ? second : minute;
    const last = date(begin) === date(end) ? clock(end) : `${date(end)} ${clock(end)}`;
    return `${date(begin)} ${clock(begin)} to ${last}`;
  };
  const local = (data) => (data.end ? between(at(data.t), at(data.end)) : forms[data.form](at(data.t)));
  for (const time of document.querySelectorAll("[data-t]")) {
    const tip = time.querySelector("title");
    if (tip) {
      const [utc, ...rest] = tip.textContent.split(": ");
      tip.textContent = `${local(time.dataset)}: ${rest.join(": ")} (${utc} UTC)`;
      continue;
    }
    time.title = `${time.textContent} UTC`;
    time.textContent = local(time.dataset);
  }
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  for (const zone of document.querySelectorAll(".zone")) zone.textContent = timeZone || "local time";
}
