"use strict";
(async () => {
  const root = document.documentElement;
  const charts = [...document.querySelectorAll(".chart")];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paper = { "--ink": "#1f2429", "--soft": "#57606a", "--line": "#d8dee4" };
  const paperWidth = 700;
  let figures = {};

  /** The text or the bytes packed in the block of that id. */
  async function unpacked(id) {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  function load(source) {
    return new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
      script.onload = done;
      script.onerror = () => failed(new Error("the chart library was refused"));
      document.head.append(script);
    });
  }

  /** The layout of a figure in the page's colours, or in those of paper. */
  function themed(layout, printed) {
    const color = (name) => (printed ? paper[name] : getComputedStyle(root).getPropertyValue(name).trim());
    const axis = { gridcolor: color("--line"), linecolor: color("--soft"), zerolinecolor: color("--line") };
    return {
      ...layout,
      font: { color: color("--ink"), family: getComputedStyle(document.body).fontFamily, size: 12 },
      hoverlabel: { namelength: 60 },
      xaxis: { ...layout.xaxis, ...axis },
      yaxis: { ...layout.yaxis, ...axis },
    };
  }

  function draw(chart, printed = false) {
    const figure = figures[chart.dataset.figure];
    const options = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"],
      showTips: false };
    const layout = themed(figure.layout, printed);
    if (printed) layout.width = paperWidth;
    return window.Plotly.react(chart, figure.data, layout, options);
  }

  // times lead to where the page is served, which the reader knows
  const place = document.getElementById("page");
  place.addEventListener("change", () => {
    let address;
    try {
      address = new URL(place.value.trim());
    } catch {
      address = null;
    }
    const known = address !== null && ["http:", "https:"].includes(address.protocol);
    place.setAttribute("aria-invalid", String(!known));
    if (!known) return;
    for (const link of document.querySelectorAll("a.place"))
      link.href = `${address.origin}${address.pathname}${new URL(link.href).hash}`;
  });

  const drawAll = () => Promise.all(charts.map((chart) => draw(chart)));

  document.getElementById("theme").addEventListener("click", () => {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    if (window.Plotly) drawAll();
  });

  try {
    figures = JSON.parse(await unpacked("figures"));
    await load(await unpacked("plotly"));
    for (const chart of charts) await draw(chart);
  } catch (error) {
    for (const chart of charts) {
      chart.style.minHeight = "0";
      chart.textContent = `The chart cannot be drawn here (${error.message}); a browser of 2023 or newer draws it.`;
    }
    root.dataset.ready = "without charts";
    return;
  }
  for (const select of document.querySelectorAll("select[data-chart]")) {
    const chart = document.getElementById(`chart-${select.dataset.chart}`);
    select.addEventListener("change", () => {
      chart.dataset.figure = select.value;
      draw(chart);
    });
  }
  dark.addEventListener("change", () => drawAll());
  addEventListener("beforeprint", () => {
    for (const chart of charts) draw(chart, true);
  });
  addEventListener("afterprint", () => drawAll());
  root.dataset.ready = "yes";
})();
