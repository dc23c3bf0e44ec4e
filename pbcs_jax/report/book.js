
{
  const known = JSON.parse(document.getElementById("known").textContent);
  const element = (tag, text = "") =>
    Object.assign(document.createElement(tag), {textContent: text});

  // Search: what does not have all the words is hidden.
  const search = document.getElementById("search"), hits = document.getElementById("hits");
  const found = [...document.querySelectorAll(".find, .all tbody tr")].map(
    part => [part, `${part.textContent} ${part.dataset.words || ""}`.toLowerCase()]);
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const [part, text] of found) part.hidden = !words.every(word => text.includes(word));
    for (const item of document.querySelectorAll(".item"))
      item.hidden = !item.querySelector(".find:not([hidden])");
    for (const line of document.querySelectorAll(".contents li"))
      line.hidden = document.querySelector(line.firstChild.hash).hidden;
    const count = (kind, name) => {
      const shown = found.filter(([part]) => part.matches(kind) && !part.hidden).length;
      return `${shown} ${name}${shown === 1 ? "" : "s"}`;
    };
    hits.textContent = words.length ? `${count("tr.find", "row")}, ${count(".run", "run")}` : "";
  });

  // A link to a run of a sweep opens it.
  const open = () => {
    const part = location.hash && document.getElementById(location.hash.slice(1));
    if (part && part.querySelector("details")) part.querySelector("details").open = true;
  };
  addEventListener("hashchange", open);
  open();

  // Two runs side by side.
  const sides = ["left", "right"].map(name => document.getElementById(name));
  const table = (heads, rows) => {
    const made = element("table"), head = made.createTHead().insertRow();
    for (const text of heads) head.append(element("th", text));
    const body = made.createTBody();
    for (const cells of rows) {
      const row = body.insertRow();
      for (const text of cells) row.append(element("td", text));
    }
    const scroll = element("div");
    scroll.className = "scroll";
    scroll.append(made);
    return scroll;
  };
  const keys = (part, [one, other]) => [...new Set([...Object.keys(one[part]),
    ...Object.keys(other[part])])];
  const compare = () => {
    const pair = sides.map(side => known[side.value]);
    if (!pair.every(Boolean)) return;
    const missing = "\u2013", [one, other] = pair;
    const settings = keys("settings", pair)
      .map(key => [key, one.settings[key] ?? missing, other.settings[key] ?? missing])
      .filter(([, first, second]) => first !== second);
    const methods = keys("accuracy", pair).map(name => {
      const more = other.means[name] - one.means[name];
      return [name, one.accuracy[name] ?? missing, other.accuracy[name] ?? missing,
        Number.isFinite(more) ? (more < 0 ? "" : "+") + more.toFixed(2) : missing];
    });
    const place = document.getElementById("differences");
    place.replaceChildren(element("h4", "Settings that differ"));
    if (settings.length) place.append(table(["setting", one.name, other.name], settings));
    else place.append(element("p", "None."));
    if (methods.length) place.append(element("h4", "Test accuracy, %"),
      table(["method", one.name, other.name, "right less left"], methods));
    sides.forEach(side => {
      const copy = document.getElementById(side.value).cloneNode(true);
      copy.removeAttribute("id");
      copy.hidden = false;
      copy.querySelectorAll("details").forEach(part => { part.open = true; });
      document.getElementById(`${side.id}-side`).replaceChildren(copy);
    });
  };
  for (const [number, side] of sides.entries()) {
    for (const [key, run] of Object.entries(known)) {
      const option = element("option", run.name);
      option.value = key;
      side.append(option);
    }
    side.selectedIndex = Math.min(number, side.options.length - 1);
    side.addEventListener("change", compare);
  }
  compare();
}
