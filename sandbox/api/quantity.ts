const FORM = /^([+-]?)(\d*)(?:\.(\d*))?(?:([KMGTPE]i)|([numkMGTPE]?)|[eE]([+-]?\d+))$/;
const BINARY = ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'];
const DECIMAL = ['n', 'u', 'm', '', 'k', 'M', 'G', 'T', 'P', 'E'];
const NANO = 10n ** 9n;

/** A quantity as an exact count of 10^-9, and the family of suffixes it was written with. Unlike
 * sutler's own `src/kube/quantity.ts`, which needs whole bytes only, this keeps what the API server
 * needs to store and compare any quantity. */
interface Quantity {
  readonly nanos: bigint;
  readonly family: 'binary' | 'decimal' | 'exponent';
}

/** The real server's message for a text that is not a quantity. */
export const QUANTITY_COMPLAINT =
  "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/** Parses Kubernetes notation exactly (rounded up, away from zero, to 10^-9); undefined where the
 * text is not a quantity. */
function parseQuantity(text: string): Quantity | undefined {
  const match = FORM.exec(text);
  if (match === null) return undefined;
  const [, sign, whole = '', fraction = '', binary, decimal = '', power] = match;
  if (whole === '' && fraction === '') return undefined;
  const exponent = power === undefined ? DECIMAL.indexOf(decimal) * 3 - 9 : Number(power);
  // A larger exponent would only cost time.
  if (Math.abs(exponent) > 1000) return undefined;
  // A decimal exponent is 0 where there is a binary suffix, and the other way around.
  const factor = 1024n ** BigInt(BINARY.indexOf(binary ?? ''));
  const units = BigInt(`${whole}${fraction}`) * NANO * factor;
  const shift = exponent - fraction.length;
  const nanos = shift >= 0 ? units * 10n ** BigInt(shift) : divideUp(units, 10n ** BigInt(-shift));
  return { nanos: sign === '-' ? -nanos : nanos, family: familyOf(binary, power) };
}

function familyOf(binary: string | undefined, power: string | undefined): Quantity['family'] {
  if (binary !== undefined) return 'binary';
  return power === undefined ? 'decimal' : 'exponent';
}

/** The form in which the server stores and returns a quantity: `1.5Gi` is `1536Mi`, `1000000000` is
 * `1G`; undefined where the text is not a quantity. */
export function canonicalQuantity(text: string): string | undefined {
  const quantity = parseQuantity(text);
  if (quantity === undefined) return undefined;
  const { nanos, family } = quantity;
  if (nanos === 0n) return '0';
  return nanos < 0n ? `-${sizeForm(-nanos, family)}` : sizeForm(nanos, family);
}

function sizeForm(nanos: bigint, family: Quantity['family']): string {
  // Below 1024 and with a fraction a binary quantity falls back to decimal suffixes.
  if (family === 'binary' && nanos >= 1024n * NANO && nanos % NANO === 0n)
    return binaryForm(nanos / NANO);
  const maxExponent = family === 'exponent' ? Number.POSITIVE_INFINITY : 18;
  let exponent = -9;
  let rest = nanos;
  while (rest % 1000n === 0n && exponent < maxExponent) {
    rest /= 1000n;
    exponent += 3;
  }
  if (family === 'exponent') return `${rest}${exponent === 0 ? '' : `e${exponent}`}`;
  return `${rest}${DECIMAL[(exponent + 9) / 3] ?? ''}`;
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

/** Negative, zero or positive where a is smaller than, equal to or larger than b. Texts that are
 * not quantities count as zero. */
export function compareQuantities(a: string, b: string): number {
  const difference = (parseQuantity(a)?.nanos ?? 0n) - (parseQuantity(b)?.nanos ?? 0n);
  return difference < 0n ? -1 : difference > 0n ? 1 : 0;
}

function divideUp(value: bigint, by: bigint): bigint {
  return value % by === 0n ? value / by : value / by + 1n;
}
