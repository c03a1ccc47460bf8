import type { ScenarioRecord } from './record.ts';

/** One difference between sutler's record and upstream's. */
export interface Difference {
  readonly scenario: string;
  /** Path in the record: `events Warning ProvisioningFailed …`. */
  readonly where: string;
  /** JSON; undefined if the record lacks this path. */
  readonly upstream: string | undefined;
  readonly sutler: string | undefined;
}

/** A difference that is intended. */
export interface KnownDifference {
  /** Name of the scenario; a pattern for several. */
  readonly scenario: string | RegExp;
  /** What the path must match. */
  readonly where: RegExp;
  /** Title of the entry of docs/parity.md that describes the difference. */
  readonly entry: string;
}

/** Every leaf in which two records of a scenario differ. */
export function differencesOf(
  scenario: string,
  upstream: ScenarioRecord,
  sutler: ScenarioRecord,
): readonly Difference[] {
  const found: Difference[] = [];
  compare('', comparable(upstream), comparable(sutler), (where, a, b) =>
    found.push({ scenario, where, upstream: JSON.stringify(a), sutler: JSON.stringify(b) }),
  );
  return found;
}

export function isKnown(difference: Difference, known: KnownDifference): boolean {
  const isScenario =
    typeof known.scenario === 'string'
      ? known.scenario === difference.scenario
      : known.scenario.test(difference.scenario);
  return isScenario && known.where.test(difference.where);
}

export function describeDifference({ where, upstream, sutler }: Difference): string {
  const [theirs, ours] = [upstream ?? '(nothing)', sutler ?? '(nothing)'];
  return `${where}\n    upstream: ${theirs}\n    sutler:   ${ours}`;
}

function comparable(record: ScenarioRecord): Partial<ScenarioRecord> {
  return { ...record, repeated: [] };
}

type Report = (where: string, upstream: unknown, sutler: unknown) => void;

function compare(where: string, upstream: unknown, sutler: unknown, report: Report): void {
  if (Array.isArray(upstream) && Array.isArray(sutler) && isFlat(upstream) && isFlat(sutler)) {
    if (JSON.stringify(upstream) !== JSON.stringify(sutler)) report(where, upstream, sutler);
    return;
  }
  if (!isObject(upstream) || !isObject(sutler)) {
    if (upstream !== sutler) report(where, upstream, sutler);
    return;
  }
  for (const key of new Set([...Object.keys(upstream), ...Object.keys(sutler)])) {
    compare(where === '' ? key : `${where} ${key}`, upstream[key], sutler[key], report);
  }
}

function isFlat(list: readonly unknown[]): boolean {
  return list.every((item) => !isObject(item));
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}
