"use strict";

// Sends the drawing or the image to this machine's own server, and shows what comes back. At most one request is under
// way; while it is, the newest image waits and older ones are dropped.

const $ = (id) => document.getElementById(id);
const pad = $("pad");
const pen = pad.getContext("2d");
const LARGEST = 32 * 2 ** 20;
let source = null; // () => a promise of the newest image, {body, drawing}
let busy = false;
let waiting = false;

function make(tag, attributes = {}, ...children) {
  const element = Object.assign(document.createElement(tag), attributes);
  element.append(...children);
  return element;
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;

// Asking

async function look() {
  if (busy) {
    waiting = true;
    return;
  }
  busy = true;
  $("classes").ariaBusy = "true";
  do {
    waiting = false;
    if (source) await ask(source);
  } while (waiting);
  busy = false;
  $("classes").ariaBusy = "false";
}

async function ask(from) {
  try {
    const { body, drawing } = await from();
    if (body.size > LARGEST) throw new Error(`the image has more than ${LARGEST / 2 ** 20} MB`);
    const invert = !drawing && $("invert").checked;
    const reply = await fetch(`look?drawing=${+drawing}&invert=${+invert}`, { method: "POST", body });
    const found = await reply.json();
    if (from !== source) return; // cleared or replaced meanwhile
    if (reply.ok) show(found);
    else complain(found.error);
  } catch (error) {
    complain(error instanceof TypeError ? "epitomic play has ended: start it again" : error.message);
  }
}

function complain(text) {
  $("problem").textContent = text;
  $("problem").hidden = false;
}

// Drawing

let last = null;

function place(event) {
  const box = pad.getBoundingClientRect();
  return [((event.clientX - box.left) / box.width) * pad.width, ((event.clientY - box.top) / box.height) * pad.height];
}

function stroke(event) {
  const next = place(event);
  pen.lineWidth = 22;
  pen.lineCap = pen.lineJoin = "round";
  pen.strokeStyle = "#fff";
  pen.beginPath();
  pen.moveTo(...(last ?? next));
  pen.lineTo(...next);
  pen.stroke();
  last = next;
  source = drawn;
  look();
}

const drawn = () => new Promise((done) => pad.toBlob((body) => done({ body, drawing: true }), "image/png"));

function blank() {
  pen.fillStyle = "#000";
  pen.fillRect(0, 0, pad.width, pad.height);
}

pad.addEventListener("pointerdown", (event) => {
  pad.setPointerCapture(event.pointerId);
  if (source !== drawn) blank();
  last = null;
  stroke(event);
});
pad.addEventListener("pointermove", (event) => {
  if (pad.hasPointerCapture(event.pointerId)) stroke(event);
});
$("clear").addEventListener("click", () => {
  blank();
  source = null;
  for (const id of ["seen", "rebuilding", "matching", "problem"]) $(id).hidden = true;
  $("empty").hidden = false;
});

// Files

function take(file) {
  if (!file) return;
  blank();
  source = async () => ({ body: file, drawing: false });
  look();
}

$("file").addEventListener("change", (event) => {
  take(event.target.files[0]);
  event.target.value = ""; // the same file can be chosen again
});
$("invert").addEventListener("change", look);
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  $("drop").classList.add("over");
});
document.addEventListener("dragleave", () => $("drop").classList.remove("over"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  $("drop").classList.remove("over");
  take(event.dataTransfer.files[0]);
});
document.addEventListener("paste", (event) => take(event.clipboardData.files[0]));

// Showing

function show(found) {
  for (const id of ["problem", "empty"]) $(id).hidden = true;
  $("seen").hidden = $("matching").hidden = $("rebuilding").hidden = false;
  $("image").src = found.image;
  $("classes").replaceChildren(...found.classes.map(bar));
  $("rebuilt").replaceChildren(
    ...found.rebuilt.map(({ source, error, picture }) =>
      make("figure", {}, make("img", { src: picture, className: "pixels", alt: `rebuilt from ${source}` }),
        make("figcaption", { textContent: `from ${source}: error ${error.toFixed(2)}` }))));
  if (!found.rebuilt.length) {
    $("rebuilt-text").textContent = "No epitomic layer of this network sees the image itself, so there is nothing to rebuild it from.";
  }
  if (!found.layers.length) {
    $("layers-text").textContent = "This network has no epitomic layer, so there are no matches to show.";
  }
  $("hint").hidden = !found.layers.some((layer) => layer.window);
  $("layers").replaceChildren(...found.layers.map((layer) => card(layer, found.image)));
}

function bar([name, share]) {
  const filled = make("i");
  filled.style.width = `${100 * share}%`;
  return make("div", { className: "bar" }, make("span", { className: "name", title: name, textContent: name }),
    make("span", { className: "track" }, filled), make("span", { className: "value", textContent: percent(share) }));
}

function card(layer, image) {
  const cells = [make("figure", {}, key(layer), make("figcaption", { textContent: "position" }))];
  const box = make("div", { className: "box", hidden: true });
  if (layer.window) {
    const picture = make("div", { className: "over-image" }, make("img", { src: image, className: "pixels", alt: "the image" }), box);
    cells.push(make("figure", {}, picture, make("figcaption", { textContent: "the image" })));
  }
  cells.push(...layer.epitomes.map((epitome) => map(layer, epitome, box)));
  const words = make("span", { textContent: ` ${layer.text}` });
  return make("article", {}, make("h3", {}, layer.name, words), make("div", { className: "maps" }, ...cells));
}

function key({ pool, colours, wins }) {
  const cells = colours.map((colour, p) => {
    const cell = make("span", { title: `position ${p}`, textContent: `${Math.round(100 * wins[p])} %` });
    cell.style.background = colour;
    return cell;
  });
  const grid = make("div", { className: "key" }, ...cells);
  grid.style.gridTemplateColumns = `repeat(${pool[1]}, 1fr)`;
  return grid;
}

function map(layer, epitome, box) {
  const picture = make("img", { src: epitome.map, className: "map pixels", alt: `where epitome ${epitome.number} won` });
  const figure = make("figure", {}, picture, make("figcaption", { textContent: `epitome ${epitome.number}` }));
  if (!layer.window) return figure;
  const inner = make("div", { className: "box", hidden: true });
  const weights = make("img", { src: epitome.weights, className: "pixels", alt: `epitome ${epitome.number}` });
  figure.append(make("div", { className: "over-image weights" }, weights, inner));
  const point = (event) => {
    const { size, stride, padding, input } = layer.window;
    const area = picture.getBoundingClientRect();
    const rows = epitome.positions.length, columns = epitome.positions[0].length;
    const at = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
    const i = at((event.clientY - area.top) / area.height, rows), j = at((event.clientX - area.left) / area.width, columns);
    frame(box, (i * stride[0] - padding[0]) / input[0], (j * stride[1] - padding[1]) / input[1], size[0] / input[0], size[1] / input[1]);
    frame(inner, ...epitome.corners[epitome.positions[i][j]], ...epitome.filter);
  };
  picture.addEventListener("pointermove", point);
  picture.addEventListener("pointerdown", point);
  picture.addEventListener("pointerleave", () => { box.hidden = inner.hidden = true; });
  return figure;
}

function frame(box, top, left, height, width) {
  box.hidden = false;
  for (const [name, share] of Object.entries({ top, left, height, width })) box.style[name] = `${100 * share}%`;
}

// Beginning

blank();
fetch("network").then((reply) => reply.json()).then((network) => {
  document.title = $("title").textContent = `${network.name} on ${network.dataset}`;
  $("drawing").hidden = !network.draw;
  $("inverting").hidden = !network.grey;
  $("size").textContent = `what the network sees: ${network.size} × ${network.size} pixels`;
});
