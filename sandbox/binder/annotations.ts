/** On a claim: the provisioner that must create its volume. Both keys are written, because clients
 * may read either. */
export const PROVISIONER = 'volume.kubernetes.io/storage-provisioner';
export const PROVISIONER_BETA = 'volume.beta.kubernetes.io/storage-provisioner';
/** On a claim whose class waits for a consumer: the node that the scheduler chose. */
export const SELECTED_NODE = 'volume.kubernetes.io/selected-node';
/** On a claim: its binding is complete. */
export const BIND_COMPLETED = 'pv.kubernetes.io/bind-completed';
/** On a claim or volume: the binder, not a user, wrote the reference, so the binder may remove it.
 */
export const BOUND_BY_CONTROLLER = 'pv.kubernetes.io/bound-by-controller';
/** On a volume: the provisioner that created it. */
export const PROVISIONED_BY = 'pv.kubernetes.io/provisioned-by';
