/** A text is not a Kubernetes quantity. The message says why. */
export class QuantityError extends Error {
  override readonly name = 'QuantityError';
}

/** Upper limit of all quantities, since CSI has 64-bit sizes. */
const MAX_BYTES = 2n ** 63n - 1n;

/** A factor: 2 or 10 to some power. */
type Scale = readonly [base: 2n | 10n, exponent: number];

const SCALES: Readonly<Record<string, Scale>> = {
  n: [10n, -9],
  u: [10n, -6],
  m: [10n, -3],
  '': [10n, 0],
  k: [10n, 3],
  M: [10n, 6],
  G: [10n, 9],
  T: [10n, 12],
  P: [10n, 15],
  E: [10n, 18],
  Ki: [2n, 10],
  Mi: [2n, 20],
  Gi: [2n, 30],
  Ti: [2n, 40],
  Pi: [2n, 50],
  Ei: [2n, 60],
};

const NUMBER = /^([+-]?)(\d*)(?:\.(\d*))?([^\d.].*)?$/;

/** Parses a quantity to whole bytes. Fractions are rounded away from zero, magnitudes are limited
 * to 2^63-1.
 * @param text  "1Gi", "500M", "0.5Ti", "1e3", "-2", "1500m"
 * @throws      QuantityError
 * @see         k8s.io/apimachinery pkg/api/resource: ParseQuantity, Quantity.Value */
export function parseQuantityBytes(text: string): bigint {
  const match = NUMBER.exec(text);
  const whole = match?.[2] ?? '';
  const fraction = match?.[3] ?? '';
  if (match === null || whole + fraction === '')
    throw new QuantityError(
      `"${text}" is not a quantity; write a number with an optional unit, like 5Gi, 500M or 1e9`,
    );
  const scale = scaleOf(text, match[4] ?? '');
  const magnitude = scaleUp(BigInt(whole + fraction), fraction.length, scale);
  const capped = magnitude > MAX_BYTES ? MAX_BYTES : magnitude;
  return match[1] === '-' ? -capped : capped;
}

function scaleOf(text: string, suffix: string): Scale {
  const known = Object.hasOwn(SCALES, suffix) ? SCALES[suffix] : undefined;
  if (known) return known;
  if (/^[eE][+-]?\d+$/.test(suffix)) return [10n, Number(suffix.slice(1))];
  throw new QuantityError(
    `"${text}": unknown unit "${suffix}"; ` +
      'known are n u m k M G T P E, Ki Mi Gi Ti Pi Ei and exponents like e3',
  );
}

/** The smallest integer not below digits × 10^-decimals × base^exponent. */
function scaleUp(digits: bigint, decimals: number, [base, exponent]: Scale): bigint {
  if (digits === 0n) return 0n;
  // 1e999999999 must not be computed, and users choose exponents. The length alone shows that a
  // number is too large or too small.
  const powerOfTen = (base === 10n ? exponent : 0) - decimals;
  const length = digits.toString().length;
  if (base === 10n && length + powerOfTen > 20) return MAX_BYTES + 1n;
  if (base === 10n && length + powerOfTen < -1) return 1n;
  const numerator =
    digits * (base === 2n ? 2n ** BigInt(exponent) : 1n) * 10n ** BigInt(Math.max(powerOfTen, 0));
  const denominator = 10n ** BigInt(Math.max(-powerOfTen, 0));
  return (numerator + denominator - 1n) / denominator;
}

/** Formats bytes as Kubernetes prints a binary quantity: with the largest of Ki..Ei that divides
 * them exactly, else as plain digits. Below 1024 it uses decimal units (1000 is "1k").
 * @see k8s.io/apimachinery pkg/api/resource: Quantity.CanonicalizeBytes with BinarySI */
export function formatBytes(bytes: bigint): string {
  const magnitude = bytes < 0n ? -bytes : bytes;
  const sign = bytes < 0n ? '-' : '';
  if (magnitude === 1000n) return `${sign}1k`;
  if (magnitude < 1024n) return `${sign}${magnitude}`;
  let rest = magnitude;
  let unit = '';
  for (const next of ['Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei']) {
    if (rest % 1024n !== 0n) break;
    rest /= 1024n;
    unit = next;
  }
  return `${sign}${rest}${unit}`;
}
