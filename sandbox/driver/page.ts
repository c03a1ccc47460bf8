import { Code } from '#src/csi/status.ts';
import { DriverStatus } from './driver-status.ts';

/** Part of a list and where the next part begins; '' ends it. */
export interface Page<T> {
  readonly items: readonly T[];
  readonly nextToken: string;
}

/** Pages go by handle: the token is the last handle shown, so that things made or deleted meanwhile
 * neither repeat nor hide others.
 * @param prefix  what handles of this list begin with
 * @throws DriverStatus for a negative size, and for a token that this list never gave */
export function pageOf<T extends { readonly handle: string }>(
  all: readonly T[],
  { maxEntries, startingToken }: { readonly maxEntries: number; readonly startingToken: string },
  prefix: string,
): Page<T> {
  if (maxEntries < 0) throw new DriverStatus(Code.InvalidArgument, 'max_entries is negative');
  if (startingToken !== '' && !startingToken.startsWith(prefix))
    throw new DriverStatus(Code.Aborted, `no page starts at "${startingToken}"`);
  const rest = all.filter(({ handle }) => handle > startingToken);
  const items = maxEntries === 0 ? rest : rest.slice(0, maxEntries);
  return { items, nextToken: items.length < rest.length ? (items.at(-1)?.handle ?? '') : '' };
}
