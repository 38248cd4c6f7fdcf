// Texts of drawings that lie over each other or leave their drawing, as they are really drawn.
const found = [];
for (const drawing of document.querySelectorAll("svg.chart")) {
  const texts = [...drawing.querySelectorAll("text")];
  const boxes = texts.map((one) => one.getBoundingClientRect());
  const frame = drawing.getBoundingClientRect();
  boxes.forEach((a, at) => {
    if (a.left < frame.left - 1 || a.right > frame.right + 1) found.push(texts[at].textContent);
    boxes.slice(at + 1).forEach((b, more) => {
      if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
        found.push(texts[at].textContent + " / " + texts[at + 1 + more].textContent);
    });
  });
}
return found
