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
