/* A view of the explorer in a page is as high as what it shows; it says how high that is, and again after each change. */
addEventListener("message", ({ source, data }) => {
  if (!(data?.explorerHeight > 0)) return;
  for (const frame of document.querySelectorAll("iframe.explorer"))
    if (frame.contentWindow === source) frame.style.height = `${Math.ceil(data.explorerHeight)}px`;
});
