// Rules of the W3C's guidelines, levels A and AA, and what is good practice besides.
const done = arguments[arguments.length - 1];
axe.run(document, { resultTypes: ["violations"] }).then(
  (found) => done(found.violations.map((one) =>
    `${one.id}: ${one.nodes.map((node) => node.target.join(" ")).slice(0, 5).join(", ")}`)),
  (error) => done([String(error)]));
