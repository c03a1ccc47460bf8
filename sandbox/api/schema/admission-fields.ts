import type { FieldTable } from './struct.ts';

/** Webhooks that the API server asks before it stores an object. */
export const admissionFields: FieldTable = {
  ValidatingWebhookConfiguration: {
    metadata: 'ObjectMeta +',
    webhooks: 'ValidatingWebhook[] merge=name map=name',
  },
  ValidatingWebhook: {
    name: 'string !',
    clientConfig: 'WebhookClientConfig ! +',
    rules: 'RuleWithOperations[]',
    failurePolicy: 'string *',
    matchPolicy: 'string *',
    namespaceSelector: 'LabelSelector',
    objectSelector: 'LabelSelector',
    sideEffects: 'string *',
    timeoutSeconds: 'int *',
    admissionReviewVersions: 'string[] !',
    matchConditions: 'MatchCondition[] merge=name map=name',
  },
  WebhookClientConfig: { url: 'string *', service: 'ServiceReference', caBundle: 'bytes' },
  ServiceReference: {
    namespace: 'string !',
    name: 'string !',
    path: 'string *',
    port: 'int *',
  },
  RuleWithOperations: {
    operations: 'string[]',
    apiGroups: 'string[]',
    apiVersions: 'string[]',
    resources: 'string[]',
    scope: 'string *',
  },
  MatchCondition: { name: 'string !', expression: 'string !' },
};
