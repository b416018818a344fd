// What scripts make easier. Without them, a link selects all, and a press selects an id to be copied.
"use strict";

for (const link of document.querySelectorAll("a[data-most]")) {
  const found = link.closest("table").querySelectorAll("tbody input[type=checkbox]");
  const boxes = [...found].slice(0, Number(link.dataset.most));
  const all = document.createElement("input");
  all.type = "checkbox";
  all.autocomplete = "off";
  all.setAttribute("aria-label", link.dataset.label);
  const follow = () => {
    const count = boxes.filter((each) => each.checked).length;
    all.checked = count === boxes.length;
    all.indeterminate = count > 0 && count < boxes.length;
  };
  all.addEventListener("change", () => boxes.forEach((each) => (each.checked = all.checked)));
  boxes.forEach((each) => each.addEventListener("change", follow));
  follow();
  link.replaceWith(all);
}

// Browsers have a clipboard for pages of HTTPS and of this machine only.
for (const id of navigator.clipboard ? document.querySelectorAll("code.whole") : []) {
  const said = document.getElementById("said");
  const copy = async () => {
    await navigator.clipboard.writeText(id.textContent);
    id.dataset.said = said.textContent = said.dataset.copied;
    setTimeout(() => {
      delete id.dataset.said;
      said.textContent = "";
    }, 2000);
  };
  id.tabIndex = 0;
  id.setAttribute("role", "button");
  id.title = said.dataset.copy;
  id.addEventListener("click", copy);
  id.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      copy();
    }
  });
}
