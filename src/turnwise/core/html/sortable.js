// Sorts tables of class "sortable" by their column headings; without this script they stay in their original order.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const text = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const size = (row) => (text(row) === "" ? -Infinity : Number(text(row)));
    const order = head.classList.contains("number") ? (a, b) => size(a) - size(b) : (a, b) => text(a).localeCompare(text(b), "en");
    const sort = () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const rows = [...body.rows].sort(order);
      body.append(...(descending ? rows.reverse() : rows));
    };
    head.setAttribute("aria-sort", "none");
    head.tabIndex = 0;
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        sort();
      }
    });
  });
}
