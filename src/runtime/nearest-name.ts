/** The candidate that the name was probably meant to be: one that is spelled alike, or the only one
 * that begins with it; undefined if there is none. */
export function nearestName(name: string, candidates: readonly string[]): string | undefined {
  const longer = candidates.filter((candidate) => candidate.startsWith(name));
  if (name !== '' && longer.length === 1) return longer[0];
  return candidates
    .map((candidate) => ({ candidate, distance: editDistance(name, candidate) }))
    .filter(({ distance }) => distance <= Math.max(2, name.length / 4))
    .sort((a, b) => a.distance - b.distance)[0]?.candidate;
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (const [i, charA] of Array.from(a).entries()) {
    const next = [i + 1];
    for (const [j, charB] of Array.from(b).entries()) {
      next.push(
        Math.min(
          (row[j + 1] ?? 0) + 1,
          (next[j] ?? 0) + 1,
          (row[j] ?? 0) + (charA === charB ? 0 : 1),
        ),
      );
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
