/** One time series of a metrics page. */
export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** Reads the text format that prom-client writes. */
export function parseMetrics(text: string): readonly Sample[] {
  return text.split('\n').flatMap((line) => {
    const match = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (match === null) return [];
    const [, name = '', labels = '', value = ''] = match;
    return [{ name, labels: parseLabels(labels), value: Number(value) }];
  });
}

function parseLabels(text: string): Readonly<Record<string, string>> {
  const pairs = text.matchAll(/([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"/g);
  return Object.fromEntries(
    Array.from(pairs, ([, name = '', value = '']) => [
      name,
      value.replaceAll(/\\(.)/g, (_, c: string) => (c === 'n' ? '\n' : c)),
    ]),
  );
}

/** Sums a metric by a key that is made of its labels. */
export function sumBy(
  samples: readonly Sample[],
  name: string,
  keyOf: (labels: Sample['labels']) => string,
): ReadonlyMap<string, number> {
  const sums = new Map<string, number>();
  for (const sample of samples) {
    if (sample.name !== name) continue;
    const key = keyOf(sample.labels);
    sums.set(key, (sums.get(key) ?? 0) + sample.value);
  }
  return sums;
}

/** How much each counter grew between two readings; counters that did not change are left out. */
export function increase(
  before: ReadonlyMap<string, number>,
  after: ReadonlyMap<string, number>,
): ReadonlyMap<string, number> {
  return new Map(
    [...after]
      .map(([key, value]) => [key, value - (before.get(key) ?? 0)] as const)
      .filter(([, added]) => added !== 0),
  );
}
