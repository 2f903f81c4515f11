// Runs the script of the page in node with the few parts of the DOM that it uses, and prints what a reader would see.
// Arguments: the script, the URL of the server, and the texts to type into the first field, one after another.
"use strict";
const { readFileSync } = require("node:fs");
const vm = require("node:vm");
const [script, base, ...typed] = process.argv.slice(2);

class Element {
  constructor(name) {
    Object.assign(this, { name, nodes: [], attributes: {}, listeners: {}, value: "", hidden: false, disabled: false });
  }
  append(...nodes) { this.nodes.push(...nodes.filter((node) => node !== "")); }
  replaceChildren(...nodes) { this.nodes = []; this.append(...nodes); }
  setAttribute(key, value) { this.attributes[key] = value; }
  addEventListener(kind, listener) { this.listeners[kind] = listener; }
  getContext() { return { createImageData: (width, height) => ({ data: new Uint8ClampedArray(4 * width * height) }), putImageData() {} }; }
  get id() { return this.attributes.id; }
  get textContent() { return this.nodes.map((node) => node.textContent ?? node).join(""); }
  set textContent(text) { this.nodes = [text]; }
  *all() { for (const node of this.nodes) if (node instanceof Element) { yield node; yield* node.all(); } }
}

const known = {};
const at = (id) => (known[id] ??= new Element(id));
const fields = () => [...at("fields").all()].filter((element) => element.name === "textarea");
const document = {
  getElementById: at,
  createElement: (name) => new Element(name),
  querySelector: (selector) => [...at("fields").all()].find(({ attributes }) => selector === `label[for=${attributes.for}]`),
};
class FormData {
  *[Symbol.iterator]() { for (const field of fields()) yield [field.attributes.name, field.value]; }
}
const fetchHere = (path, options) => fetch(new URL(path, `${base}/`), options);
const settled = () => new Promise((resolve) => {
  const check = () => (at("run").disabled || !at("progress").hidden || at("maps").attributes["aria-busy"] === "true" ? setTimeout(check, 10) : resolve());
  setTimeout(check, 20);
});
function show() {
  const elements = [...at("result").all()];
  console.log(JSON.stringify({
    fields: fields().map((field) => field.value),
    headings: elements.filter(({ name }) => name === "h2").map((element) => element.textContent),
    marks: elements.filter(({ name }) => name === "mark").map((element) => element.textContent),
    rows: elements.filter(({ name }) => name === "tr").map((row) => row.nodes.map((cell) => cell.textContent)),
    text: elements.filter(({ attributes }) => attributes.class === "text").map((element) => element.textContent),
    error: at("error").textContent,
    inside: [...at("maps").all()].filter(({ name }) => name === "tr").map((row) => row.nodes.map((cell) => cell.textContent)),
    canvases: [...at("maps").all()].filter(({ name }) => name === "canvas").length,
    inside_error: at("inside-error").textContent,
    layers: at("layer").nodes.length,
    exported: !at("exported").hidden,
  }));
}

(async () => {
  at("run").disabled = true;
  at("progress").hidden = true;
  at("inside").open = true;
  vm.runInNewContext(readFileSync(script, "utf-8"), { document, FormData, fetch: fetchHere, console, Array, Object, Math, JSON });
  await settled();
  show();
  for (const text of typed) {
    fields()[0].value = text;
    at("form").listeners.submit({ preventDefault() {} });
    await settled();
    show();
  }
})();
