/** What the bench keeps of a PV. */
export interface VolumeSlice {
  readonly metadata: {
    readonly name: string;
    readonly uid: string;
    readonly resourceVersion: string;
  };
  /** Name of its claim; '' for none. */
  readonly claim: string;
}

/** Cuts a PV of the API down. */
export function sliceOfVolume(raw: unknown): VolumeSlice {
  const { metadata, spec } = raw as {
    readonly metadata: VolumeSlice['metadata'];
    readonly spec?: { readonly claimRef?: { readonly name?: string } };
  };
  const { name, uid, resourceVersion } = metadata;
  return { metadata: { name, uid, resourceVersion }, claim: spec?.claimRef?.name ?? '' };
}
