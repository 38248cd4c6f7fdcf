// Elements whose content is wider than they are, and that nobody can scroll.
return [...document.querySelectorAll("body *")].filter((one) => {
  if (one.closest("svg") || one.classList.contains("hear") || !one.clientWidth) return false;
  const style = getComputedStyle(one);
  return style.display !== "inline" && one.scrollWidth > one.clientWidth + 1
    && !(["auto", "scroll"].includes(style.overflowX) && one.tabIndex === 0);
}).map((one) => `${one.tagName} ${one.className} ${one.textContent.slice(0, 80)}`)
