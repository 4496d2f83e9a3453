"use strict";
(() => {
  const data = JSON.parse(document.getElementById("verax-data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const MOST = 60;

  // Every text of a record becomes a text node: nothing of it is ever read as HTML.
  function make(tag, options, ...children) {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(options || {})) {
      if (key === "class") element.className = value;
      else element.setAttribute(key, value);
    }
    element.append(...children);
    return element;
  }
  function draw(tag, attributes, ...children) {
    const element = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }
  function table(caption, columns, rows, styles) {
    const head = make("tr", {}, ...columns.map((c) => make("th", { scope: "col" }, c)));
    const body = rows.map((row) => make("tr", {}, ...row.map((cell, i) =>
      i ? make("td", { class: styles[i] || "name" }, cell) : make("th", { scope: "row", class: "name" }, cell))));
    return make("div", { class: "wide" }, make("table", {},
      make("caption", { class: "hidden" }, caption), make("thead", {}, head), make("tbody", {}, ...body)));
  }
  function histogram(errors) {
    const svg = draw("svg", { class: "histogram", viewBox: "0 0 390 96", role: "img", "aria-label": "Histogram of error over allowed: " + errors.beyond });
    svg.append(draw("rect", { class: "above", x: 249, y: 0, width: 141, height: 80 }));
    for (const [column, height, beyond, text] of errors.bars) {
      svg.append(draw("rect", { class: beyond ? "beyond" : "within", x: 3 + 6 * column, y: 80 - 76 * height, width: 5, height: 76 * height }, draw("title", {}, text)));
    }
    svg.append(draw("line", { x1: 249, x2: 249, y1: 0, y2: 80 }),
      draw("text", { x: 3, y: 93 }, "none"), draw("text", { x: 246, y: 93, "text-anchor": "end" }, "allowed"),
      draw("text", { x: 387, y: 93, "text-anchor": "end" }, "1000 times"));
    return svg;
  }
  function errorFigure(errors) {
    const figure = make("figure", { class: "errors" }, make("figcaption", {}, "Error over allowed, ",
      make("span", { class: "name" }, errors.value), " (" + errors.shape + "): " + errors.beyond + ". Heights are logarithms of counts."), histogram(errors));
    if (errors.pictures.length) {
      const pictures = errors.pictures.map(([address, columns, rows, text]) => make("figure", {},
        make("img", { src: address, width: columns, height: rows, alt: "Error map, " + text }), make("figcaption", {}, text)));
      figure.append(make("div", { class: "pictures" }, ...pictures),
        make("p", { class: "scale" }, make("span", { class: "ramp", "aria-hidden": "true" }), " blue: within what is allowed; yellow to red: beyond it, up to the largest in the picture; " + errors.axes));
    }
    return figure;
  }
  function details(node) {
    const parts = [
      make("h3", { tabindex: "-1" }, make("span", { class: "name" }, node.name), " ", make("span", { class: "quiet" }, node.operator)),
      make("p", {}, make("span", { class: "chip k-" + node.kind }, node.label)),
      ...node.text.map((line) => make("p", {}, line)),
    ];
    for (const finding of node.findings) {
      parts.push(make("h4", {}, "Verdict on ", make("span", { class: "name" }, finding.value)), make("p", {}, finding.label + ": " + finding.reason),
        table("Figures", ["figure", "value"], finding.figures, ["", ""]));
      if (finding.worst.length) {
        parts.push(make("h4", {}, "Worst elements"),
          table("Worst elements", ["index", "expected", "given", "difference"], finding.worst, ["", "number", "number", "number"]));
      }
    }
    for (const errors of node.errors) parts.push(make("h4", {}, "Errors"), errorFigure(errors));
    if (node.attributes.length) parts.push(make("h4", {}, "Attributes"), table("Attributes", ["attribute", "value"], node.attributes, []));
    parts.push(make("h4", {}, "Inputs and outputs"),
      table("Inputs and outputs", ["value", "type"], [...node.inputs, ...node.outputs.map(([v, t]) => ["\u2192 " + v, t])], []));
    return parts;
  }

  function graph(root, facts) {
    const views = [...root.querySelectorAll(".view")];
    const detail = root.querySelector(".detail");
    const field = root.querySelector("input[type=search]");
    const hits = root.querySelector(".hits");
    const boxes = views.map((view) => [...view.querySelectorAll(".box")]);
    const home = new Map(); // node -> [view, box]
    boxes.forEach((list, v) => list.forEach((box, b) => { if (box.dataset.node) home.set(+box.dataset.node, [v, b]); }));
    const scale = views.map(() => 1);
    const names = facts.nodes.map((n) => [n.name, n.operator, ...n.inputs.map((i) => i[0]), ...n.outputs.map((o) => o[0])].join("\n").toLowerCase());
    const lengths = facts.nodes.map((n) => n.name.length + 1 + n.operator.length);
    let current = 0, selected = null, found = new Set();

    function zoom(v, factor, x, y) {
      const canvas = views[v].querySelector(".canvas"), svg = canvas.querySelector("svg");
      const size = facts.views[v].size, old = scale[v];
      scale[v] = Math.min(4, Math.max(0.05, factor));
      const px = x === undefined ? canvas.clientWidth / 2 : x, py = y === undefined ? canvas.clientHeight / 2 : y;
      const left = (canvas.scrollLeft + px) / old, top = (canvas.scrollTop + py) / old;
      svg.setAttribute("width", Math.round(size[0] * scale[v]));
      svg.setAttribute("height", Math.round(size[1] * scale[v]));
      canvas.scrollTo(left * scale[v] - px, top * scale[v] - py);
    }
    function fit(v) {
      const canvas = views[v].querySelector(".canvas"), size = facts.views[v].size;
      zoom(v, Math.min(1.5, (canvas.clientWidth - 4) / size[0], (canvas.clientHeight - 4) / size[1]));
    }
    function show(v) {
      views[current].hidden = true;
      current = v;
      views[v].hidden = false;
    }
    function center(v, b) {
      const canvas = views[v].querySelector(".canvas"), [x, y] = facts.views[v].centers[b];
      canvas.scrollTo(x * scale[v] - canvas.clientWidth / 2, y * scale[v] - canvas.clientHeight / 2);
    }
    function select(v, b, focused) {
      if (v !== current) show(v);
      if (selected) selected.classList.remove("selected");
      const box = boxes[v][b];
      selected = box;
      box.classList.add("selected");
      for (const one of boxes[v]) one.setAttribute("tabindex", one === box ? "0" : "-1");
      center(v, b);
      if (focused) box.focus({ preventScroll: true });
      if (box.dataset.node) detail.replaceChildren(...details(facts.nodes[+box.dataset.node]));
      detail.scrollTop = 0;
    }
    function open(v) {
      const from = current;
      show(v);
      const back = boxes[v].findIndex((box) => box.dataset.open === String(from));
      select(v, back < 0 ? 0 : back, true);
    }
    function step(v, b, key) {
      const { centers, edges, layers } = facts.views[v];
      const [x] = centers[b];
      if (key === "ArrowUp" || key === "ArrowDown") {
        const near = edges.filter((e) => e[key === "ArrowUp" ? 1 : 0] === b).map((e) => e[key === "ArrowUp" ? 0 : 1]);
        return near.sort((p, q) => Math.abs(centers[p][0] - x) - Math.abs(centers[q][0] - x))[0];
      }
      const layer = layers.find((one) => one.includes(b)) || [];
      return layer[layer.indexOf(b) + (key === "ArrowLeft" ? -1 : 1)];
    }
    function search() {
      const words = field.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
      const named = (i) => words.every((w) => names[i].slice(0, lengths[i]).includes(w));
      const all = names.map((_, i) => i).filter((i) => words.length && words.every((w) => names[i].includes(w)));
      found = new Set([...all.filter(named), ...all.filter((i) => !named(i))]); // then those beside one
      root.classList.toggle("searched", words.length > 0);
      const opened = new Set(); // drawings that hold one, and those around them
      for (const i of found) for (let v = home.get(i)[0]; v >= 0 && !opened.has(v); v = facts.views[v].parent) opened.add(v);
      boxes.forEach((list) => list.forEach((box) => box.classList.toggle("hit",
        box.dataset.node ? found.has(+box.dataset.node) : box.dataset.open ? opened.has(+box.dataset.open) : false)));
      const listed = [...found].slice(0, MOST).map((i) => {
        const n = facts.nodes[i];
        const button = make("button", { type: "button" }, make("span", { class: "dot k-" + n.kind, "aria-hidden": "true" }),
          make("span", { class: "name" }, n.name), make("span", { class: "quiet" }, n.operator + ", " + n.label));
        button.addEventListener("click", () => select(...home.get(i), true));
        return make("li", {}, button);
      });
      if (found.size > MOST) listed.push(make("li", { class: "quiet" }, "and " + (found.size - MOST) + " more"));
      if (words.length && !found.size) listed.push(make("li", { class: "quiet" }, "no node has this in its name, operator or values"));
      hits.replaceChildren(...listed);
      hits.hidden = !words.length;
    }

    views.forEach((view, v) => {
      const canvas = view.querySelector(".canvas");
      canvas.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        const area = canvas.getBoundingClientRect();
        zoom(v, scale[v] * Math.exp(-event.deltaY / 300), event.clientX - area.left, event.clientY - area.top);
      }, { passive: false });
      let drag = null;
      canvas.addEventListener("pointerdown", (event) => {
        if (event.button === 0 && event.pointerType === "mouse") drag = [event.clientX + canvas.scrollLeft, event.clientY + canvas.scrollTop, false];
      });
      canvas.addEventListener("pointermove", (event) => {
        if (!drag) return;
        const [x, y] = [drag[0] - event.clientX, drag[1] - event.clientY];
        if (!drag[2] && Math.abs(x - canvas.scrollLeft) + Math.abs(y - canvas.scrollTop) < 6) return;
        drag[2] = true;
        canvas.classList.add("dragged");
        canvas.scrollTo(x, y);
      });
      canvas.addEventListener("click", (event) => {
        if (drag && drag[2]) { event.stopPropagation(); event.preventDefault(); }
        drag = null;
      }, true);
      addEventListener("pointerup", () => { canvas.classList.remove("dragged"); setTimeout(() => { drag = null; }); });
      canvas.addEventListener("click", (event) => {
        const box = event.target.closest(".box");
        if (!box) return;
        if (box.dataset.open) open(+box.dataset.open);
        else select(v, +box.dataset.box, true);
      });
      canvas.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        const box = event.target.closest(".box");
        const b = box ? +box.dataset.box : 0;
        if (event.key.startsWith("Arrow")) {
          const next = box ? step(v, b, event.key) : 0;
          if (next !== undefined) select(v, next, true);
        } else if (event.key === "Enter" || event.key === " ") {
          if (!box) select(v, 0, true);
          else if (box.dataset.open) open(+box.dataset.open);
          else select(v, b, true);
        } else if (event.key === "Escape" && facts.views[v].parent >= 0) open(facts.views[v].parent);
        else if (event.key === "+" || event.key === "=") zoom(v, scale[v] * 1.25);
        else if (event.key === "-") zoom(v, scale[v] / 1.25);
        else if (event.key === "0") fit(v);
        else return;
        event.preventDefault();
      });
    });
    root.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      if (button.dataset.zoom === "fit") fit(current);
      else if (button.dataset.zoom) zoom(current, scale[current] * (button.dataset.zoom === "in" ? 1.25 : 0.8));
      else if (button.dataset.open) open(+button.dataset.open);
      else if (button.dataset.select) select(...home.get(+button.dataset.select), true);
      else if (button.dataset.kind) {
        const nodes = facts.legend[button.dataset.kind];
        const at = selected && selected.dataset.node ? nodes.findIndex((i) => i > +selected.dataset.node) : 0;
        select(...home.get(nodes[at < 0 ? 0 : at]), true);
      }
    });
    field.addEventListener("input", search);
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && found.size) select(...home.get([...found][0]), true);
      else if (event.key === "Escape") { field.value = ""; search(); }
    });
    const worst = facts.first;
    if (worst >= 0) select(...home.get(worst), false);
    else center(0, 0); // constants may make the first layers wide
    return { root, field };
  }

  const graphs = data.graphs.map((facts) => graph(document.getElementById(facts.id), facts));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.closest("input, textarea") || !graphs.length) return;
    event.preventDefault();
    const middle = innerHeight / 2;
    const distance = (g) => { const area = g.root.getBoundingClientRect(); return Math.max(area.top - middle, middle - area.bottom, 0); };
    const near = graphs.reduce((a, b) => (distance(b) < distance(a) ? b : a));
    near.field.focus();
    near.field.select();
  });
  for (const button of document.querySelectorAll("button.copy")) {
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copies);
      try {
        await navigator.clipboard.writeText(source.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(source);
        button.textContent = "Selected: press Ctrl+C";
      }
    });
  }
  addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details")) one.open = true; });
})();
