"use strict";
/* Draws each figure of the page by plotly.js, in the colours of the page, as high as its panels and its legend need. */
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)"), narrow = matchMedia("(max-width: 600px)");
  const boxes = [...document.querySelectorAll(".figure")];
  const config = {displaylogo: false, responsive: true, doubleClick: "reset+autosize",
    modeBarButtonsToRemove: ["select2d", "lasso2d"], toImageButtonOptions: {format: "svg"}};

  function read(box) {
    let text = box.querySelector("script").textContent;
    const colours = dark.matches ? JSON.parse(document.body.dataset.dark) : {};
    for (const [light, other] of Object.entries(colours)) text = text.replaceAll(`"${light}"`, `"${other}"`);
    return JSON.parse(text);
  }

  /* Panels keep their height whatever room the legend above them takes. */
  function fit(plot, inner) {
    const missing = Math.ceil(inner - plot._fullLayout._size.h);
    return Math.abs(missing) > 1 ? Plotly.relayout(plot, {height: plot._fullLayout.height + missing}) : null;
  }

  async function draw(box) {
    const {data, layout} = read(box), plot = box.querySelector(".plot");
    layout.hoverlabel = {align: "left", namelength: 60};
    layout.dragmode = matchMedia("(pointer: coarse)").matches ? false : "zoom"; // a finger scrolls the page
    if (narrow.matches) {
      layout.font.size = 10;
      layout.margin = {...layout.margin, l: 40, r: 8};
      for (const trace of data) if (trace.mode === "markers+text") trace.mode = "markers"; // names have no room
    }
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", layout.meta.label);
    await Plotly.react(plot, data, layout, config);
    await fit(plot, layout.meta.inner);
    box.dataset.drawn = "yes";
  }

  async function all() { for (const box of boxes) await draw(box); }

  let waits = 0;
  addEventListener("resize", () => {
    clearTimeout(waits);
    waits = setTimeout(all, 200);
  });
  dark.addEventListener("change", all);
  all();
})();
