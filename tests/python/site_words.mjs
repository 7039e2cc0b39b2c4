// Prints how many of 600 sets of made-up words the search of the documentation's site loses a word of, or finds a word
// in that is not there. It uses the library in the search worker of a built site.
//   node site_words.mjs SITE
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import vm from "node:vm";

const workers = join(process.argv[2], "assets/javascripts/workers");
const script = readdirSync(workers).find((name) => /^search\..*\.js$/.test(name));
const inner = { console, addEventListener: () => {}, postMessage: () => {} };
inner.self = inner;
vm.runInNewContext(readFileSync(join(workers, script), "utf8"), inner);

let seed = 12345;
function random(below) {
  seed = (seed * 1103515245 + 12345) % 2147483648;
  return seed % below;
}

let wrong = 0;
for (let n = 0; n < 600; n++) {
  const words = new Set();
  for (let i = 40 + random(400); i > 0; i--) {
    let word = "";
    for (let k = 1 + random(6); k > 0; k--) word += "abcd123456789"[random(13)];
    words.add(word);
  }
  const sorted = [...words].sort();
  inner.lunr.TokenSet._nextId = 1;
  wrong += JSON.stringify(inner.lunr.TokenSet.fromArray(sorted).toArray().sort()) !== JSON.stringify(sorted);
}
console.log(wrong);
