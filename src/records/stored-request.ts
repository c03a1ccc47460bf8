import type { VolumeAnswer, VolumeSkeleton } from '../volumes/persistent-volume.ts';
import type { SecretRef } from '../volumes/secret-ref.ts';

/** What is stored of a creation, so that it can be sent again byte for byte when claim or class are
 * changed or gone. Contains no secret values. */
export interface VolumeRequest {
  /** Encoded CreateVolumeRequest without secrets. */
  readonly request: Uint8Array;
  /** The PV as far as it is known before the driver answers. */
  readonly skeleton: VolumeSkeleton;
  /** The provisioner secret. */
  readonly secret: SecretRef | undefined;
  /** The gateway that is called; in a plan, the one to call where no leader has named any. */
  readonly endpoint: string;
}

/** A VolumeRequest as Redis has it. What was decoded for a run is never encoded again. */
export interface RequestTexts {
  /** Base64. */
  readonly request: string;
  /** JSON. */
  readonly skeleton: string;
  /** JSON, '' for none. */
  readonly secret: string;
  readonly endpoint: string;
}

export function encodeRequest(planned: VolumeRequest): RequestTexts {
  return {
    request: Buffer.from(planned.request).toString('base64'),
    skeleton: JSON.stringify(planned.skeleton),
    secret: planned.secret === undefined ? '' : JSON.stringify(planned.secret),
    endpoint: planned.endpoint,
  };
}

/** @throws Error where a text is not what encodeRequest writes */
export function decodeRequest(texts: RequestTexts): VolumeRequest {
  return {
    request: Buffer.from(texts.request, 'base64'),
    skeleton: decode<VolumeSkeleton>(texts.skeleton, 'volume'),
    secret: texts.secret === '' ? undefined : decode<SecretRef>(texts.secret, 'name'),
    endpoint: texts.endpoint,
  };
}

export function encodeAnswer(answer: VolumeAnswer): string {
  return JSON.stringify(answer);
}

/** @param text  '' for none
 * @throws Error where the text is not what encodeAnswer writes */
export function decodeAnswer(text: string): VolumeAnswer | undefined {
  return text === '' ? undefined : decode<VolumeAnswer>(text, 'handle');
}

/** UID of the object that a volume is filled from; undefined for an empty volume.
 * @param skeleton  the text of a stored skeleton */
export function sourceUidIn(skeleton: string): string | undefined {
  const { source } = JSON.parse(skeleton) as { readonly source?: { readonly uid?: unknown } };
  return typeof source?.uid === 'string' ? source.uid : undefined;
}

/** Only sutler writes these texts, so checking one field is enough. */
function decode<T extends object>(text: string, field: keyof T & string): T {
  const value: unknown = JSON.parse(text);
  if (typeof value !== 'object' || value === null || !(field in value))
    throw new Error(`a stored volume request has no ${field}: it was not written by sutler`);
  return value as T;
}
