// The lines that a change removes and adds.

const LARGEST = 4_000_000; // cells of the table of common lines; for larger texts all changed lines are removed and added

// The lines of both texts in order: [{ kind, text }], with kind "same", "removed" or "added".
export function changesOf(before, after) {
  const [a, b] = [before.split("\n"), after.split("\n")];
  let first = 0;
  while (first < Math.min(a.length, b.length) && a[first] === b[first]) first += 1;
  let last = 0;
  while (last < Math.min(a.length, b.length) - first && a.at(-1 - last) === b.at(-1 - last)) last += 1;
  const as = (kind, lines) => lines.map((text) => ({ kind, text }));
  return [
    ...as("same", a.slice(0, first)),
    ...middle(a.slice(first, a.length - last), b.slice(first, b.length - last), as),
    ...as("same", a.slice(a.length - last)),
  ];
}

function middle(a, b, as) {
  if (a.length * b.length > LARGEST) return [...as("removed", a), ...as("added", b)];
  // common[i][j]: the most lines that a from i and b from j have in common, in order
  const common = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const changes = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      changes.push(...as("same", [a[i]]));
      i += 1;
      j += 1;
    } else if (i < a.length && (j === b.length || common[i + 1][j] >= common[i][j + 1])) {
      changes.push(...as("removed", [a[i]]));
      i += 1;
    } else {
      changes.push(...as("added", [b[j]]));
      j += 1;
    }
  }
  return changes;
}

// `changes` with at most `around` unchanged lines before and after each change; { kind: "left out", count } for the others.
export function shortened(changes, around = 3) {
  const near = new Uint8Array(changes.length);
  for (const [at, { kind }] of changes.entries()) {
    if (kind !== "same") near.fill(1, Math.max(0, at - around), at + around + 1);
  }
  const short = [];
  for (const [at, change] of changes.entries()) {
    if (near[at]) short.push(change);
    else if (short.length && short.at(-1).kind === "left out") short.at(-1).count += 1;
    else short.push({ kind: "left out", count: 1 });
  }
  return short;
}
