import { Code } from '#src/csi/status.ts';
import { parseQuantityBytes, QuantityError } from '#src/kube/quantity.ts';
import { DriverStatus } from './driver-status.ts';

/** Parameter of a class: room that its volumes leave free in each pool, such as 500Mi. */
const RESERVE_PARAMETER = 'reserve';

/** @throws DriverStatus InvalidArgument where the parameter is not a size */
export function reservedBytesOf(parameters: Readonly<Record<string, string>>): bigint {
  const text = parameters[RESERVE_PARAMETER];
  if (text === undefined) return 0n;
  try {
    const bytes = parseQuantityBytes(text);
    if (bytes >= 0n) return bytes;
  } catch (cause) {
    if (!(cause instanceof QuantityError)) throw cause;
  }
  throw new DriverStatus(Code.InvalidArgument, `the parameter reserve is not a size: ${text}`);
}
