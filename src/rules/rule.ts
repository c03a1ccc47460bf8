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

/** Thrown by a rule for a claim, class or volume that can't be served as it is. The message is what
 * the user reads in the event. */
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

/** Calls `act`; the message of a refusal gets a prefix. */
export function prefixRefusal<T>(prefix: string, act: () => T): T {
  return catchRefusal(act, (cause) => {
    throw new RefusedError(`${prefix}: ${cause.message}`, { cause, waitsFor: cause.waitsFor });
  });
}

/* A rule decides about a claim or a volume. Most rules are plain functions from values to a value.
 * A rule that needs an object from the API server is a generator: it yields a step ("read this
 * object"), its caller performs the step and resumes the rule with the answer, and in the end the
 * rule returns its result or throws a RefusedError. So no rule does I/O, the checks stand in
 * upstream's order in one function, and tests run rules over objects in memory.
 * jobs/read-objects.ts performs the steps at the API server.
 *
 *   function* sourceVolume(claim: Claim): Rule<Volume> {
 *     return yield* read<Volume>(volumes, { name: claim.spec.volumeName });
 *   }
 *
 * `yield*` calls another rule; `read` and `list` below are the smallest rules. */

/** A rule that pauses at steps and returns T. */
export type Rule<T> = Generator<Step, T, Answer>;

/** What a rule asks its caller to do at the API server. */
export type Step =
  | { readonly kind: 'read'; readonly resource: Resource; readonly ref: ObjectRef }
  | { readonly kind: 'list'; readonly resource: Resource; readonly namespace: string }
  /** The object was read before and does not have the finalizer yet. */
  | {
      readonly kind: 'add-finalizer';
      readonly resource: Resource;
      readonly object: KubeObject;
      readonly finalizer: string;
    };

/** The API server's answer to a step. An API server that can't be reached gives none: the caller
 * ends the rule. */
export type Answer =
  | { readonly kind: 'found'; readonly object: KubeObject }
  /** `isUnknownKind`: the server does not serve this kind of object. */
  | { readonly kind: 'absent'; readonly isUnknownKind?: true }
  | { readonly kind: 'listed'; readonly items: readonly KubeObject[] }
  | { readonly kind: 'finalizer-added' }
  /** An error status, with the server's message. */
  | { readonly kind: 'refused'; readonly code: number; readonly message: string };

/** Reads an object. An object that does not exist refuses the claim until it is created.
 * @param prefix begins the refusal's message; the cause follows
 * @throws RefusedError for an object that does not exist or may not be read */
export function* read<T extends KubeObject>(
  resource: Resource,
  ref: ObjectRef,
  prefix = '',
): Rule<T> {
  const answer = yield { kind: 'read', resource, ref };
  const begin = prefix === '' ? '' : `${prefix}: `;
  // The caller read exactly this resource.
  if (answer.kind === 'found') return answer.object as T;
  if (answer.kind === 'refused') throw new RefusedError(`${begin}${answer.message}`);
  const isUnknownKind = answer.kind === 'absent' && answer.isUnknownKind === true;
  const cause = isUnknownKind ? unknownKind(resource, ref.name) : notFound(resource, ref.name);
  throw new RefusedError(`${begin}${cause}`, {
    waitsFor: [{ resource: resource.plural, ...ref, seen: '' }],
  });
}

/** Lists the objects of a namespace.
 * @param prefix begins the refusal's message
 * @throws RefusedError if the server refuses */
export function* list<T extends KubeObject>(
  resource: Resource,
  namespace: string,
  prefix: string,
): Rule<readonly T[]> {
  const answer = yield { kind: 'list', resource, namespace };
  if (answer.kind === 'refused') throw new RefusedError(`${prefix}: ${answer.message}`);
  return answer.kind === 'listed' ? (answer.items as readonly T[]) : [];
}

/** The refusal of a claim until an object, which was read as given, changes. */
export function refuseUntilChanged(
  resource: Resource,
  object: KubeObject,
  message: string,
): RefusedError {
  return new RefusedError(message, { waitsFor: [toWaitCondition(resource, object)] });
}

/** Runs a rule about what `object` refers to. A refusal that waits for another object ends also
 * when `object` itself changes, since it may then refer to a different one.
 * @throws RefusedError */
export function* alsoWaitFor<T>(resource: Resource, object: KubeObject, rule: Rule<T>): Rule<T> {
  try {
    return yield* rule;
  } catch (cause) {
    if (!(cause instanceof RefusedError) || cause.waitsFor.length === 0) throw cause;
    const { message, waitsFor } = cause;
    const condition = toWaitCondition(resource, object);
    if (waitsFor.some((other) => isSameObject(other, condition))) throw cause;
    throw new RefusedError(message, { cause, waitsFor: [...waitsFor, condition] });
  }
}

/** Runs a rule and changes the message of its refusals; what they wait for stays. */
export function* rewordRefusal<T>(rule: Rule<T>, reword: (message: string) => string): Rule<T> {
  try {
    return yield* rule;
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
