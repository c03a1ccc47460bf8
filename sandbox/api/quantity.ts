const FORM = /^([+-]?)(\d*)(?:\.(\d*))?(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?\d+|)$/;
const BINARY = ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'] as const;
const DECIMAL: Readonly<Record<string, number>> = {
  n: -9,
  u: -6,
  m: -3,
  '': 0,
  k: 3,
  M: 6,
  G: 9,
  T: 12,
  P: 15,
  E: 18,
};
const DECIMAL_SUFFIX = new Map(
  Object.entries(DECIMAL).map(([suffix, exponent]) => [exponent, suffix]),
);
const NANO = 10n ** 9n;

/** A quantity as an exact count of 10^-9, and the family of suffixes it was written with. */
export interface Quantity {
  readonly nanos: bigint;
  readonly family: 'binary' | 'decimal' | 'exponent';
}

/** What the real server says of a text that is no quantity. */
export const QUANTITY_COMPLAINT =
  "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/** Parses Kubernetes notation exactly (rounded up, away from zero, to 10^-9); undefined where it is
 * no quantity. */
export function parseQuantity(text: string): Quantity | undefined {
  const match = FORM.exec(text);
  if (match === null) return undefined;
  const [, sign = '', whole = '', fraction = '', suffix = ''] = match;
  if (whole === '' && fraction === '') return undefined;
  const digits = BigInt(`${whole}${fraction}`);
  const power = BINARY.indexOf(suffix as (typeof BINARY)[number]);
  const isBinary = suffix !== '' && power > 0;
  const exponent =
    /^[eE]/.test(suffix) && suffix.length > 1 ? Number(suffix.slice(1)) : (DECIMAL[suffix] ?? 0);
  if (Math.abs(exponent) > 1000) return undefined;
  let nanos = digits * NANO * (isBinary ? 1024n ** BigInt(power) : 1n);
  const shift = (isBinary ? 0 : exponent) - fraction.length;
  nanos = shift >= 0 ? nanos * 10n ** BigInt(shift) : divideUp(nanos, 10n ** BigInt(-shift));
  return {
    nanos: sign === '-' ? -nanos : nanos,
    family: isBinary ? 'binary' : /^[eE]./.test(suffix) ? 'exponent' : 'decimal',
  };
}

/** The form in which the server stores and returns a quantity: `1.5Gi` is `1536Mi`, `1000000000` is
 * `1G`. undefined where it is none. */
export function canonicalQuantity(text: string): string | undefined {
  const quantity = parseQuantity(text);
  if (quantity === undefined) return undefined;
  const { nanos, family } = quantity;
  if (nanos === 0n) return '0';
  const size = nanos < 0n ? -nanos : nanos;
  const sign = nanos < 0n ? '-' : '';
  // Below 1024 and with a fraction a binary quantity falls back to decimal suffixes.
  if (family === 'binary' && size >= 1024n * NANO && size % NANO === 0n)
    return sign + binaryForm(size / NANO);
  const maxExponent = family === 'exponent' ? Number.POSITIVE_INFINITY : 18;
  let exponent = -9;
  let rest = size;
  while (rest % 1000n === 0n && exponent < maxExponent) {
    rest /= 1000n;
    exponent += 3;
  }
  if (family === 'exponent') return `${sign}${rest}${exponent === 0 ? '' : `e${exponent}`}`;
  return `${sign}${rest}${DECIMAL_SUFFIX.get(exponent) ?? ''}`;
}

function binaryForm(value: bigint): string {
  let power = 0;
  let rest = value;
  while (rest % 1024n === 0n && power < BINARY.length - 1) {
    rest /= 1024n;
    power += 1;
  }
  return `${rest}${BINARY[power] ?? ''}`;
}

/** Negative, zero or positive as a is smaller than, equal to or larger than b; texts that are no
 * quantity count as zero. */
export function compareQuantities(a: string, b: string): number {
  const difference = (parseQuantity(a)?.nanos ?? 0n) - (parseQuantity(b)?.nanos ?? 0n);
  return difference < 0n ? -1 : difference > 0n ? 1 : 0;
}

function divideUp(value: bigint, by: bigint): bigint {
  return value % by === 0n ? value / by : value / by + 1n;
}
