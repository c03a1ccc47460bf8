/** The resources that hints are about: claims and volumes, of the core group. */
export const NOTICED_RESOURCES = ['persistentvolumeclaims', 'persistentvolumes'] as const;

/** Says that an object may have changed. It may come late, twice, out of order, or name an object
 * that never comes to be, so whoever gets it reads the object afresh. */
export interface ChangeNotice {
  readonly resource: (typeof NOTICED_RESOURCES)[number];
  /** '' for a volume. */
  readonly namespace: string;
  readonly name: string;
  /** Sent before the API server has stored the object, as admission webhooks are: look a moment
   * later, and again. */
  readonly isEarly: boolean;
}
