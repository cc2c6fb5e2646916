// Tables of class "sortable" sort by their headings; from eight rows on they get a box to filter by words.
// A group of class "choices" shows the rows of one kind in the table that its data-for names.
(function () {
  "use strict";
  var LEAST_ROWS = 8;

  function key(row, column) {
    var cell = row.cells[column];
    return cell.dataset.key === undefined ? cell.textContent.trim() : cell.dataset.key;
  }

  // What has no value stays below whatever the direction is.
  function compare(a, b, up) {
    if (a === "" || b === "") { return (a === "") - (b === ""); }
    var order = isNaN(a) || isNaN(b) ? a.localeCompare(b, "en", { numeric: true }) : a - b;
    return up ? order : -order;
  }

  function sort(table, head, column) {
    var up = head.getAttribute("aria-sort") !== "ascending", body = table.tBodies[0];
    table.querySelectorAll("thead th").forEach(function (other) { other.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    Array.from(body.rows).sort(function (a, b) {
      var absent = a.classList.contains("absent") - b.classList.contains("absent");
      return absent || compare(key(a, column), key(b, column), up);
    }).forEach(function (row) { body.appendChild(row); });
  }

  function filtering(table) {
    var rows = Array.from(table.tBodies[0].rows), words = [], kind = "", count = null;
    function show() {
      var shown = 0;
      rows.forEach(function (row) {
        var text = row.textContent.toLowerCase();
        row.hidden = (kind !== "" && row.dataset.kind !== kind) || !words.every(function (word) { return text.includes(word); });
        shown += !row.hidden;
      });
      if (count) { count.textContent = shown === rows.length ? rows.length + " rows" : shown + " of " + rows.length + " rows"; }
    }
    function box() {
      var line = document.createElement("p"), label = document.createElement("label"), input = document.createElement("input");
      count = document.createElement("output");
      input.type = "search";
      input.placeholder = "words, in any order";
      input.addEventListener("input", function () {
        words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
        show();
      });
      label.append("Show rows with ", input);
      line.className = "filter";
      line.append(label, count);
      table.parentElement.before(line);
    }
    function choices(group) {
      var buttons = group.querySelectorAll("button");
      buttons.forEach(function (button) {
        button.addEventListener("click", function () {
          buttons.forEach(function (other) { other.setAttribute("aria-pressed", other === button); });
          kind = button.dataset.show;
          show();
        });
      });
    }
    if (rows.length >= LEAST_ROWS) { box(); }
    document.querySelectorAll('.choices[data-for="' + table.id + '"]').forEach(choices);
    show();
  }

  document.querySelectorAll("table.sortable").forEach(function (table) {
    table.querySelectorAll("thead th").forEach(function (head, column) {
      head.firstElementChild.addEventListener("click", function () { sort(table, head, column); });
    });
    filtering(table);
  });
})();
