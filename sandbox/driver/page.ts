import { Code } from '#src/csi/status.ts';
import { DriverStatus } from './driver-status.ts';

/** A part of a list. */
export interface Page<T> {
  readonly items: readonly T[];
  /** Asks for the next part; '' after the last one. */
  readonly nextToken: string;
}

/** Pages are ordered by handle and the token is the last handle of the page, so that items that are
 * created or deleted meanwhile neither repeat nor hide others.
 * @param prefix  the prefix of the handles in this list
 * @throws DriverStatus for a negative size, and for a token of another list */
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
