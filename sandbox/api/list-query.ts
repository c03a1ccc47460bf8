import { ApiError, badRequest, expired } from './api-error.ts';
import { isObject, textAt } from './json-value.ts';
import {
  bothSelectors,
  parseFieldSelector,
  parseLabelSelector,
  type Selector,
} from './selectors.ts';
import type { Collection, Store, Stored } from './store.ts';

/** The query of a list or watch, parsed. */
export interface ListQuery {
  readonly namespace: string | undefined;
  readonly select: Selector | undefined;
  readonly limit: number;
  readonly continueToken: string;
  readonly resourceVersion: string;
  readonly sendInitialEvents: boolean;
}

export interface ListPage {
  readonly items: readonly Stored[];
  readonly revision: number;
  readonly continueToken?: string;
  readonly remainingItemCount?: number;
}

/** Parses the query of a list or watch.
 * @throws ApiError 400 for a selector that can't be parsed */
export function parseListQuery(namespace: string | undefined, query: URLSearchParams): ListQuery {
  return {
    namespace,
    select: bothSelectors(
      parseLabelSelector(query.get('labelSelector') ?? ''),
      parseFieldSelector(query.get('fieldSelector') ?? ''),
    ),
    limit: Number(query.get('limit') ?? 0),
    continueToken: query.get('continue') ?? '',
    resourceVersion: query.get('resourceVersion') ?? '',
    sendInitialEvents: isTrue(query.get('sendInitialEvents')),
  };
}

/** True for the spellings of true in query strings. */
export function isTrue(text: string | null): boolean {
  return text !== null && /^(1|t|true|)$/i.test(text);
}

/** A resourceVersion as a number.
 * @throws ApiError 400 for anything but digits */
export function parseRevision(text: string): number {
  if (/^\d+$/.test(text)) return Number(text);
  const value = JSON.stringify(text);
  throw badRequest(
    `invalid resource version: resourceVersion: Invalid value: ${value}: ` +
      `strconv.ParseUint: parsing ${value}: invalid syntax`,
  );
}

/** One page of a list. All pages of one list name the version of the first: later pages may have
 * newer objects, and a watch from that version sends their changes again.
 * @throws ApiError 410 if the history since that version is no longer kept, 504 for a version in
 *   the future */
export function listPage(store: Store, collection: Collection, query: ListQuery): ListPage {
  const asked = query.resourceVersion === '' ? 0 : parseRevision(query.resourceVersion);
  if (asked > store.revision) throw tooLarge(asked, store.revision);
  const token = query.continueToken === '' ? undefined : parseContinue(query.continueToken);
  const revision = token?.revision ?? store.revision;
  if (revision < collection.compactedTo)
    throw expired(
      'The provided continue parameter is too old to display a consistent list result. ' +
        'You can start a new list without the continue parameter.',
    );
  const matches = matching(collection.sorted, query);
  const rest = token === undefined ? matches : matches.filter((each) => each.key > token.after);
  if (query.limit === 0 || rest.length <= query.limit) return { items: rest, revision };
  const items = rest.slice(0, query.limit);
  return {
    items,
    revision,
    continueToken: formatContinue(revision, items.at(-1)?.key ?? ''),
    remainingItemCount: rest.length - items.length,
  };
}

interface ContinueToken {
  readonly revision: number;
  /** The key of the last item of the previous page. */
  readonly after: string;
}

function matching(all: readonly Stored[], query: ListQuery): readonly Stored[] {
  const { namespace, select } = query;
  if (namespace === undefined && select === undefined) return all;
  return all.filter(
    (each) =>
      (namespace === undefined || each.object.metadata.namespace === namespace) &&
      (select === undefined || select(each.object)),
  );
}

function formatContinue(rv: number, start: string): string {
  return Buffer.from(JSON.stringify({ rv, start })).toString('base64url');
}

function parseContinue(token: string): ContinueToken {
  try {
    const parsed: unknown = JSON.parse(Buffer.from(token, 'base64url').toString());
    if (isObject(parsed)) return { revision: Number(parsed['rv']), after: textAt(parsed, 'start') };
  } catch {
    // Not JSON: the same answer as for a token of another shape.
  }
  throw badRequest('invalid continue token: continue key is not valid');
}

/** 504: the requested revision is in the future. The real server waits three seconds for it first;
 * this one answers at once. */
function tooLarge(asked: number, current: number): ApiError {
  return new ApiError({
    code: 504,
    reason: 'Timeout',
    message: `Timeout: Too large resource version: ${asked}, current: ${current}`,
    details: {
      causes: [{ reason: 'ResourceVersionTooLarge', message: 'Too large resource version' }],
      retryAfterSeconds: 1,
    },
  });
}
