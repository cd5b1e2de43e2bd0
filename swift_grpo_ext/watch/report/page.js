"use strict";

// Text of models and datasets is added only as text nodes: nothing here parses HTML.
function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split(".");
  const svg = ["svg", "path", "line", "text", "g", "title"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  if (classes.length) node.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function byId(id) {
  return document.getElementById(id);
}

function figure(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}

function percent(value) {
  return Number((100 * value).toPrecision(3)) + " %";
}

function runColour(number) {
  return `var(--run${number % 12})`;
}

function readData(page) {
  return JSON.parse(page.getElementById("data").textContent);
}

let data = readData(document);
