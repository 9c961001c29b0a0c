#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static volatile int stop; static long run_iter, sleep_us;
static void spin(long n){ for(volatile long i=0;i<n;i++) if(i%500==0) __builtin_ia32_pause(); }
static void*hog(void*a){ while(!stop) spin(1000); return 0; }
static void*sleeper(void*a){ struct timespec t={0,sleep_us*1000}; while(!stop){ spin(run_iter); nanosleep(&t,0);} return 0; }
static void*child(void*a){ spin(run_iter); return 0; }
int main(int c,char**v){ int n=atoi(v[2]); double s=atof(v[3]); pthread_t t[512];
 if(!strcmp(v[1],"hog")){ for(int i=0;i<n;i++) pthread_create(t+i,0,hog,0); usleep(s*1e6); }
 else if(!strcmp(v[1],"sleep")){ run_iter=atol(v[4]); sleep_us=atol(v[5]); for(int i=0;i<n;i++) pthread_create(t+i,0,sleeper,0); usleep(s*1e6);}
 else { run_iter=atol(v[4]); struct timespec a,b; clock_gettime(CLOCK_MONOTONIC,&a); do { for(int i=0;i<n;i++) pthread_create(t+i,0,child,0); for(int i=0;i<n;i++) pthread_join(t[i],0); usleep(30000); clock_gettime(CLOCK_MONOTONIC,&b);} while(b.tv_sec-a.tv_sec+(b.tv_nsec-a.tv_nsec)/1e9<s); return 0; }
 stop=1; for(int i=0;i<n;i++) pthread_join(t[i],0); return 0; }
