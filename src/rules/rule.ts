import type { KubeClient } from '../kube/client.ts';
import { isOutage, KubeError } from '../kube/kube-error.ts';
import type { KubeObject } from '../kube/objects.ts';
import type { ObjectRef, Resource } from '../kube/resources.ts';

/** The object whose change may end a refusal. */
export interface WaitCondition {
  /** Plural name of its resource. */
  readonly resource: string;
  readonly namespace?: string;
  readonly name: string;
  /** The resourceVersion that was read; '' if the object did not exist. */
  readonly seen: string;
}

/** A refusal as the result of a plan. */
export interface Refusal {
  readonly kind: 'refuse';
  /** For the user. */
  readonly message: string;
  /** The objects whose change ends the refusal. */
  readonly waitsFor: readonly WaitCondition[];
}

/** Thrown by a rule for a claim, class or volume that can't be served as it is. The user reads the
 * message in the event. */
export class RefusedError extends Error {
  override readonly name = 'RefusedError';
  /** Empty if no known object ends the refusal. */
  readonly waitsFor: readonly WaitCondition[];

  constructor(message: string, options: ErrorOptions & Partial<Pick<Refusal, 'waitsFor'>> = {}) {
    super(message, options);
    this.waitsFor = options.waitsFor ?? [];
  }
}

/** Calls `act` and turns a RefusedError into what `onRefusal` returns or throws. Any other error
 * is a defect and passes. */
export function catchRefusal<T>(act: () => T, onRefusal: (refusal: RefusedError) => T): T {
  try {
    return act();
  } catch (error) {
    if (error instanceof RefusedError) return onRefusal(error);
    throw error;
  }
}

/** Calls `act`, and puts a prefix before the message of a refusal. */
export function prefixRefusal<T>(prefix: string, act: () => T): T {
  return catchRefusal(act, (cause) => {
    throw new RefusedError(`${prefix}: ${cause.message}`, { cause, waitsFor: cause.waitsFor });
  });
}

/** The API server for rules: they read objects, and one adds a finalizer. Calls reject with
 * KubeError if the API server is down. */
export type ObjectApi = Pick<KubeClient, 'get' | 'list' | 'patch' | 'update'>;

/** Reads an object. An object that does not exist refuses the claim until it is created.
 * @param prefix begins the refusal's message; the cause follows
 * @throws RefusedError for an object that does not exist or may not be read */
export async function read<T extends KubeObject>(
  api: ObjectApi,
  resource: Resource,
  ref: ObjectRef,
  prefix = '',
): Promise<T> {
  const begin = prefix === '' ? '' : `${prefix}: `;
  let cause = notFound(resource, ref.name);
  try {
    const object = await api.get<T>(resource, ref);
    if (object !== undefined) return object;
  } catch (error) {
    if (!isAboutUnknownKind(error)) throw toRefusal(error, begin);
    cause = unknownKind(resource, ref.name);
  }
  throw new RefusedError(`${begin}${cause}`, {
    waitsFor: [{ resource: resource.plural, ...ref, seen: '' }],
  });
}

/** Whether the server does not know the kind, because its CRD is not installed. */
export function isAboutUnknownKind(error: unknown): boolean {
  return error instanceof KubeError && error.code === 404;
}

/** Turns an error of the API server into a refusal with its message; returns any other error as it
 * is.
 * @param begin begins the message */
export function toRefusal(error: unknown, begin = ''): unknown {
  if (!(error instanceof KubeError) || isOutage(error)) return error;
  return new RefusedError(`${begin}${error.serverMessage}`, { cause: error });
}

/** Refuses a claim until an object changes. */
export function refuseUntilChanged(
  resource: Resource,
  object: KubeObject,
  message: string,
): RefusedError {
  return new RefusedError(message, { waitsFor: [toWaitCondition(resource, object)] });
}

/** Awaits a rule about an object that `object` refers to. A refusal that waits for another object
 * also ends when `object` changes, since it may then refer to a different one.
 * @throws RefusedError */
export async function alsoWaitFor<T>(
  resource: Resource,
  object: KubeObject,
  rule: Promise<T>,
): Promise<T> {
  try {
    return await rule;
  } catch (cause) {
    if (!(cause instanceof RefusedError) || cause.waitsFor.length === 0) throw cause;
    const { message, waitsFor } = cause;
    const condition = toWaitCondition(resource, object);
    if (waitsFor.some((other) => isSameObject(other, condition))) throw cause;
    throw new RefusedError(message, { cause, waitsFor: [...waitsFor, condition] });
  }
}

/** Awaits a rule and changes the message of its refusals, but not what they wait for. */
export async function rewordRefusal<T>(
  rule: Promise<T>,
  reword: (message: string) => string,
): Promise<T> {
  try {
    return await rule;
  } catch (cause) {
    if (!(cause instanceof RefusedError)) throw cause;
    throw new RefusedError(reword(cause.message), { cause, waitsFor: cause.waitsFor });
  }
}

function toWaitCondition({ plural }: Resource, { metadata }: KubeObject): WaitCondition {
  const { namespace, name, resourceVersion } = metadata;
  const ref = namespace === undefined ? { name } : { namespace, name };
  return { resource: plural, ...ref, seen: resourceVersion };
}

function isSameObject(a: WaitCondition, b: WaitCondition): boolean {
  return a.resource === b.resource && a.namespace === b.namespace && a.name === b.name;
}

/** The API server's message for an object that does not exist: `secrets "x" not found`. */
export function notFound(resource: Resource, name: string): string {
  return `${groupedPlural(resource)} "${name}" not found`;
}

/** client-go's message for a kind that the server does not serve. */
function unknownKind(resource: Resource, name: string): string {
  const request = `get ${groupedPlural(resource)} ${name}`;
  return `the server could not find the requested resource (${request})`;
}

function groupedPlural({ plural, group }: Resource): string {
  return group === '' ? plural : `${plural}.${group}`;
}
