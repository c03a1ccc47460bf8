import type { PlannedRequest, PvTemplate, VolumeAnswer } from '../volumes/persistent-volume.ts';
import type { SecretRef } from '../volumes/secret-ref.ts';
import { messageOf } from '../runtime/error-message.ts';
import { isFields, parseJson } from '../runtime/json.ts';
import { checkSeal, type RecordKeys, sealOf } from './record-seal.ts';

/** What is stored of a creation, so that it can be sent again byte for byte when claim or class are
 * changed or gone. Contains no secret values. */
export interface VolumeRequest extends PlannedRequest {
  /** The gateway that is called; in a plan, the one to call where no leader has named any. */
  readonly endpoint: string;
}

/** A VolumeRequest as Redis has it. What was decoded for a run is never encoded again. */
export interface RequestTexts {
  /** Base64. */
  readonly request: string;
  /** JSON. */
  readonly pvTemplate: string;
  /** JSON, '' for none. */
  readonly secret: string;
  readonly endpoint: string;
  /** Of request, PV template and secret; '' for none. */
  readonly seal: string;
}

const NO_REQUEST: RequestTexts = {
  request: '',
  pvTemplate: '',
  secret: '',
  endpoint: '',
  seal: '',
};

/** Encodes requests and answers for the records of one driver and seals them; decodes what is
 * stored, and checks its seals. */
export class SealedRequests {
  readonly #place: readonly string[];
  readonly #keys: () => RecordKeys | undefined;

  /** @param keys  as --record-key-file says now; undefined without it */
  constructor(
    { prefix, driver }: { readonly prefix: string; readonly driver: string },
    keys: () => RecordKeys | undefined = () => undefined,
  ) {
    this.#place = [prefix, driver];
    this.#keys = keys;
  }

  /** @param planned  undefined: empty texts */
  encode(id: string, planned: VolumeRequest | undefined): RequestTexts {
    if (planned === undefined) return NO_REQUEST;
    const texts = encodeRequest(planned);
    return { ...texts, seal: sealOf(this.#keys(), this.#requestPart(id, texts)) };
  }

  encodeAnswer(id: string, answer: VolumeAnswer): string {
    return encodeAnswer(answer, sealOf(this.#keys(), this.#answerPart(id, answer)));
  }

  /** Checks the seals of what is stored, or whether it fits where it has none.
   * @param answerText  '' for none
   * @param whyUnfit  why a request that no seal proves is not one for this object
   * @returns what is wrong, if anything */
  decode(
    id: string,
    texts: RequestTexts,
    answerText: string,
    whyUnfit?: (stored: VolumeRequest) => string | undefined,
  ): string | { readonly stored: VolumeRequest; readonly answer: VolumeAnswer | undefined } {
    const keys = this.#keys();
    try {
      const stored = decodeRequest(texts);
      const decoded = decodeAnswer(answerText);
      const isSealed = checkSeal(keys, this.#requestPart(id, texts), texts.seal);
      if (decoded !== undefined)
        checkSeal(keys, this.#answerPart(id, decoded.answer), decoded.seal);
      const unfit = isSealed ? undefined : whyUnfit?.(stored);
      return unfit ?? { stored, answer: decoded?.answer };
    } catch (error) {
      return messageOf(error);
    }
  }

  #requestPart(id: string, { request, pvTemplate, secret }: Omit<RequestTexts, 'seal'>) {
    return [...this.#place, id, 'request', request, pvTemplate, secret];
  }

  #answerPart(id: string, answer: VolumeAnswer) {
    return [...this.#place, id, 'answer', encodeAnswer(answer)];
  }
}

export function encodeRequest(planned: VolumeRequest): Omit<RequestTexts, 'seal'> {
  return {
    request: Buffer.from(planned.request).toString('base64'),
    pvTemplate: JSON.stringify(planned.pvTemplate),
    secret: planned.secret === undefined ? '' : JSON.stringify(planned.secret),
    endpoint: planned.endpoint,
  };
}

/** @throws Error where a text is not what encodeRequest writes */
export function decodeRequest(texts: Omit<RequestTexts, 'seal'>): VolumeRequest {
  return {
    request: Buffer.from(texts.request, 'base64'),
    pvTemplate: decode(texts.pvTemplate, 'PV template', isPvTemplate),
    secret: texts.secret === '' ? undefined : decode(texts.secret, 'secret', isSecretRef),
    endpoint: texts.endpoint,
  };
}

/** @param seal  of the answer, as it is encoded without a seal; '' for none */
export function encodeAnswer(answer: VolumeAnswer, seal = ''): string {
  return JSON.stringify(seal === '' ? answer : { ...answer, seal });
}

/** @param text  '' for none
 * @throws Error where the text is not what encodeAnswer writes */
export function decodeAnswer(
  text: string,
): { readonly answer: VolumeAnswer; readonly seal: string } | undefined {
  if (text === '') return undefined;
  const { seal = '', ...answer } = decode(text, 'answer', isAnswer);
  return { answer, seal };
}

/** The handle in a stored answer; undefined for none. */
export function handleIn(text: string): string | undefined {
  const parsed = parseJson(text);
  return isAnswer(parsed) ? parsed.handle : undefined;
}

/** UID of the object that a volume is filled from; undefined for an empty volume.
 * @param pvTemplate  the text of a stored PV template */
export function sourceUidIn(pvTemplate: string): string | undefined {
  const parsed = parseJson(pvTemplate);
  const source = isFields(parsed) ? parsed['source'] : undefined;
  return isFields(source) && typeof source['uid'] === 'string' ? source['uid'] : undefined;
}

function decode<T>(text: string, field: string, isWhole: (value: unknown) => value is T): T {
  const value = parseJson(text);
  if (isWhole(value)) return value;
  throw new Error(`its ${field} is not what sutler writes`);
}

/* These checks cover what identifies the volume and the secret. A seal covers the rest. */

function isPvTemplate(value: unknown): value is PvTemplate {
  if (!isFields(value) || !isFields(value['volume'])) return false;
  const { metadata, spec } = value['volume'];
  return (
    isFields(metadata) &&
    typeof metadata['name'] === 'string' &&
    isFields(spec) &&
    isFields(spec['csi'])
  );
}

function isSecretRef(value: unknown): value is SecretRef {
  return (
    isFields(value) && typeof value['name'] === 'string' && typeof value['namespace'] === 'string'
  );
}

function isAnswer(value: unknown): value is VolumeAnswer & { readonly seal?: string } {
  return isFields(value) && typeof value['handle'] === 'string';
}
