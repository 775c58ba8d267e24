"use strict";

/* What pages share: downloads, the clipboard, and the setting in the address. Nothing leaves the page. */
const Tools = (() => {
  const byId = (id) => document.getElementById(id);

  const node = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };

  const download = (name, type, text) => {
    const address = URL.createObjectURL(new Blob([text], { type }));
    node("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  };

  /* A cell with a comma, a quote or a line break is quoted; one that a spreadsheet would run gets an apostrophe. */
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const csv = (rows) => rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";

  /* An SVG that stands alone: the page's styles become attributes, its colour of paper the background. */
  const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-family", "font-weight"];
  const svgText = (svg) => {
    const copy = svg.cloneNode(true), { width, height } = svg.viewBox.baseVal;
    const own = svg.querySelectorAll("*"), copied = copy.querySelectorAll("*");
    own.forEach((each, k) => {
      const style = getComputedStyle(each);
      for (const name of STYLES) copied[k].setAttribute(name, style.getPropertyValue(name));
      copied[k].removeAttribute("class");
    });
    const paper = document.createElementNS(svg.namespaceURI, "rect");
    for (const [key, value] of Object.entries({ width, height, fill: getComputedStyle(document.body).backgroundColor })) paper.setAttribute(key, value);
    copy.prepend(paper);
    for (const [key, value] of Object.entries({ xmlns: svg.namespaceURI, width, height })) copy.setAttribute(key, value);
    return new XMLSerializer().serializeToString(copy);
  };

  const copy = async (source, said) => {
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      const range = document.createRange();
      range.selectNodeContents(source);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      document.execCommand("copy");
    }
    said.textContent = "Copied.";
  };

  /* The setting in the address after #, so a link or a bookmark holds it. */
  const readAddress = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const writeAddress = (setting) => {
    const known = Object.entries(setting).filter(([, value]) => value !== null && value !== undefined && value !== "");
    history.replaceState(null, "", `#${new URLSearchParams(known)}`);
  };

  for (const button of document.querySelectorAll("button[data-svg]"))
    button.addEventListener("click", () => download(`${button.dataset.svg}.svg`, "image/svg+xml", svgText(byId(button.dataset.svg))));

  return { byId, node, download, csv, svgText, copy, readAddress, writeAddress };
})();
