// Sorting and finding in tables. Without it everything can be read, in the order it was written.
"use strict";
document.documentElement.classList.add("js");
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
