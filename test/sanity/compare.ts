/** The final state of each csi-sanity spec, by full title. */
export type Results = ReadonlyMap<string, string>;

interface SpecReport {
  readonly ContainerHierarchyTexts?: readonly string[] | null;
  readonly LeafNodeText?: string;
  readonly LeafNodeType?: string;
  readonly State?: string;
}

interface Suite {
  readonly SpecReports?: readonly SpecReport[];
}

/** Reads ginkgo's JSON report. Titles that occur more than once are numbered.
 * @throws Error if the report is empty or not JSON */
export function readResults(json: string): Results {
  const suites: unknown = JSON.parse(json);
  if (!Array.isArray(suites)) throw new Error('the report of csi-sanity is not a list of suites');
  const results = new Map<string, string>();
  for (const spec of suites.flatMap((suite: Suite) => suite.SpecReports ?? [])) {
    if (spec.LeafNodeType !== undefined && spec.LeafNodeType !== 'It') continue;
    const title = [...(spec.ContainerHierarchyTexts ?? []), spec.LeafNodeText ?? ''].join(' › ');
    let name = title;
    for (let count = 2; results.has(name); count += 1) name = `${title} (${count})`;
    results.set(name, spec.State ?? 'unknown');
  }
  if (results.size === 0) throw new Error('the report of csi-sanity has no specs in it');
  return results;
}

/** Specs that ended differently in the two runs, one line each. */
export function differences(direct: Results, through: Results): readonly string[] {
  const titles = [...new Set([...direct.keys(), ...through.keys()])];
  return titles.flatMap((title) => {
    const [before, after] = [direct.get(title) ?? 'absent', through.get(title) ?? 'absent'];
    return before === after
      ? []
      : [`${title}: ${before} on the driver, ${after} through the gateway`];
  });
}

/** How many specs ended in each state: "76 passed, 1 failed, 18 skipped". */
export function countStates(results: Results): string {
  const counts = new Map<string, number>();
  for (const state of results.values()) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts]
    .toSorted(([a], [b]) => a.localeCompare(b))
    .map(([state, count]) => `${count} ${state}`)
    .join(', ');
}
