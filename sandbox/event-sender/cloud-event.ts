import { isFields, type Fields } from '#src/runtime/json.ts';

/** What an event tells: where the object is, or the whole object. */
export type EventMode = 'reference' | 'resource';

/** An object of the core group, as far as an event names it. */
export interface EventObject {
  readonly kind: string;
  readonly apiVersion: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
}

/** A change, as a watch reports it. */
export interface ObjectChange {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly object: EventObject;
}

/** A CloudEvent in binary mode: the attributes are headers, the body is the data. */
export interface CloudEvent {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const OPERATIONS = { ADDED: 'add', MODIFIED: 'update', DELETED: 'delete' } as const;

/** The event for a change, as Knative's ApiServerSource sends it.
 * @param how.source  URL of the API server
 * @param how.id      one for each event, the same for each attempt to send it */
export function cloudEvent(
  { type, object }: ObjectChange,
  how: { readonly mode: EventMode; readonly source: string; readonly id: string; nowMs: number },
): CloudEvent {
  const { kind, apiVersion, metadata } = object;
  const { name, namespace = '' } = metadata;
  const shape = how.mode === 'reference' ? 'ref' : 'resource';
  return {
    headers: {
      'content-type': 'application/json',
      'ce-specversion': '1.0',
      'ce-id': how.id,
      'ce-type': `dev.knative.apiserver.${shape}.${OPERATIONS[type]}`,
      'ce-source': how.source,
      // No path of the API: /apis also for the core group, and an empty namespace for an object of
      // the cluster.
      'ce-subject': `/apis/${apiVersion}/namespaces/${namespace}/${kind.toLowerCase()}s/${name}`,
      'ce-time': new Date(how.nowMs).toISOString().replace('Z', '000000Z'),
      'ce-kind': kind,
      'ce-apiversion': apiVersion,
      'ce-name': name,
      'ce-namespace': namespace,
      'kn-namespace': 'default',
    },
    body: how.mode === 'reference' ? reference(object) : goJson(object),
  };
}

function reference({ kind, apiVersion, metadata: { name, namespace } }: EventObject): string {
  const where = namespace === undefined ? { kind, name } : { kind, namespace, name };
  return JSON.stringify({ ...where, apiVersion });
}

const ESCAPED: Readonly<Record<string, string>> = {
  '&': '\\u0026',
  '<': '\\u003c',
  '>': '\\u003e',
};

/** An object as Go writes it, where an object of any kind is a map: its keys are in order. */
function goJson(object: EventObject): string {
  return JSON.stringify(object, (_name, value: unknown) =>
    isFields(value) ? inOrder(value) : value,
  ).replaceAll(/[&<>]/g, (char) => ESCAPED[char] ?? char);
}

function inOrder(fields: Fields): Fields {
  return Object.fromEntries(Object.entries(fields).sort(([a], [b]) => (a < b ? -1 : 1)));
}
