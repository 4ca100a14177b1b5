"use strict";
/* Draws each figure of the page by plotly.js, in the colours of the page, as high as its panels and its legend need. */
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)"), narrow = matchMedia("(max-width: 600px)");
  const boxes = [...document.querySelectorAll(".figure")];
  const few = narrow.matches ? {modeBarButtons: [["zoomIn2d", "zoomOut2d", "resetScale2d"]]} : {};
  const config = {...few, displaylogo: false, responsive: true, doubleClick: "reset+autosize",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "sendChartToCloud"], plotlyServerURL: "", toImageButtonOptions: {format: "svg"}};

  function read(box) {
    const colours = dark.matches ? JSON.parse(document.body.dataset.dark) : {};
    const instead = (text) => Object.entries(colours).reduce((made, [light, other]) => made.replaceAll(light, other), text);
    return JSON.parse(box.querySelector("script").textContent, (key, one) => (key === "shadow" ? instead(one) : Object.hasOwn(colours, one) ? colours[one] : one));
  }

  /* The height at which panels are as high as they are made for, whatever room the legend above them takes. */
  async function height(plot, data, layout) {
    const one = (values) => (Array.isArray(values) ? values.slice(0, 1) : values);
    const firsts = data.map((trace) => Object.fromEntries(Object.entries(trace).map(([key, value]) => [key, one(value)])));
    await Plotly.react(plot, firsts, layout, config);
    return Math.ceil(layout.height + layout.meta.inner - plot._fullLayout._size.h);
  }

  async function draw(box) {
    const {data, layout} = read(box), plot = box.querySelector(".plot");
    layout.hoverlabel = {align: "left", namelength: 60};
    layout.dragmode = matchMedia("(pointer: coarse)").matches ? false : "zoom"; // a finger scrolls the page
    if (narrow.matches) {
      layout.font.size = 10;
      layout.margin.l *= 0.85;
      layout.margin.b += 12;
      const titles = Object.entries(layout).filter(([key]) => key.startsWith("xaxis")).map(([, axis]) => axis.title);
      for (const one of titles) one.text = one.text.replace(/(.{28,40}?)\s/g, "$1<br>");
      for (const one of layout.annotations) one.text = one.text.replace(/(.{44,54}?)\s/g, "$1<br>");
      for (const trace of data) if (trace.mode === "markers+text") trace.mode = "markers"; // names have no room
    }
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", layout.meta.label);
    layout.height = await height(plot, data, layout);
    await Plotly.react(plot, data, layout, config);
    box.dataset.drawn = "yes";
  }

  async function all() {
    for (const box of boxes) {
      await draw(box);
      await new Promise((done) => setTimeout(done)); // each figure is seen, and the page scrolls, before the next is drawn
    }
  }

  let waits = 0;
  addEventListener("resize", () => {
    clearTimeout(waits);
    waits = setTimeout(all, 200);
  });
  dark.addEventListener("change", all);
  all();
})();
