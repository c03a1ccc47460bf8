/** On a claim: which provisioner shall make its volume; two spellings, clients may read either. */
export const PROVISIONER = 'volume.kubernetes.io/storage-provisioner';
export const PROVISIONER_BETA = 'volume.beta.kubernetes.io/storage-provisioner';
/** On a claim whose class waits for a consumer: the node that the scheduler chose. */
export const SELECTED_NODE = 'volume.kubernetes.io/selected-node';
/** On a claim: both sides of its binding are written. */
export const BIND_COMPLETED = 'pv.kubernetes.io/bind-completed';
/** On a claim or volume: the binder wrote the reference, not a person, so it may take it back. */
export const BOUND_BY_CONTROLLER = 'pv.kubernetes.io/bound-by-controller';
/** On a volume: who made it. */
export const PROVISIONED_BY = 'pv.kubernetes.io/provisioned-by';
