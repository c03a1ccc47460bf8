import { keyOf, pathOf, type Resource } from './resources.ts';
import type { WireRequest } from './transport.ts';

export interface CallOptions {
  readonly signal?: AbortSignal;
  /** Limit for the whole call, with its retries and the wait for the rate limit. 30 s where absent.
   */
  readonly timeoutMs?: number;
}

/** One call to the API server, ready to be sent. */
export interface ApiCall {
  readonly verb: Verb;
  /** PLURAL or PLURAL/SUBRESOURCE, for metrics. */
  readonly resource: string;
  /** For errors: "get persistentvolumeclaims/ns/name". */
  readonly title: string;
  readonly method: WireRequest['method'];
  readonly path: string;
  readonly contentType: string;
  /** The Accept header. */
  readonly accept: string;
  readonly body: string | undefined;
  /** Whether the body of a 2xx answer is dropped as it arrives. */
  readonly isAnswerUnread: boolean;
  readonly options: CallOptions;
}

/** Accept headers by which the API server sends objects without spec and status. One that does not
 * know the form sends whole objects. */
const METADATA_ONLY: Readonly<Partial<Record<Verb, string>>> = {
  list: 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json',
  watch: 'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json',
};

const METHODS = {
  get: 'GET',
  list: 'GET',
  watch: 'GET',
  create: 'POST',
  update: 'PUT',
  patch: 'PATCH',
  delete: 'DELETE',
} as const;

type Verb = keyof typeof METHODS;

/** What a call does to which object or collection. */
export interface CallDescription {
  readonly verb: Verb;
  readonly resource: Resource;
  readonly at: {
    readonly namespace?: string | undefined;
    readonly name?: string;
    readonly subresource?: string | undefined;
  };
  readonly options?: CallOptions | undefined;
  /** Parameters whose value is undefined are left out. */
  readonly query?: Readonly<Record<string, string | number | undefined>>;
  readonly body?: unknown;
  readonly contentType?: string;
  /** As in ApiCall. */
  readonly isAnswerUnread?: boolean;
  /** Asks for the metadata alone; only for list and watch. */
  readonly metadataOnly?: boolean | undefined;
}

export function describeCall(o: CallDescription): ApiCall {
  const { verb, at, body } = o;
  const plural = o.resource.plural + (at.subresource === undefined ? '' : `/${at.subresource}`);
  const place =
    at.name === undefined ? at.namespace : keyOf({ namespace: at.namespace, name: at.name });
  return {
    verb,
    resource: plural,
    title: `${verb} ${plural}${place ? ` ${place}` : ''}`,
    method: METHODS[verb],
    path: pathOf(o.resource, at) + (o.query === undefined ? '' : searchOf(o.query)),
    contentType: o.contentType ?? 'application/json',
    accept: acceptOf(o),
    body: body === undefined ? undefined : JSON.stringify(body),
    isAnswerUnread: o.isAnswerUnread ?? false,
    options: o.options ?? {},
  };
}

/** The query with its `?`; '' if no parameter has a value. */
function searchOf(query: NonNullable<CallDescription['query']>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    if (value !== undefined) search.set(name, String(value));
  return search.size === 0 ? '' : `?${search.toString()}`;
}

function acceptOf({ verb, metadataOnly }: CallDescription): string {
  return (metadataOnly === true ? METADATA_ONLY[verb] : undefined) ?? 'application/json';
}
